"""A Ray cluster of two raylets, started once; this process is one of its drivers."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.launcher.ray.session import RaySession
from ranks.ray.ray_spawner import RaySpawner
from tests.ranks.ray.two_raylets import TwoRaylets, spawner_of_followers
from tests.schedule import RAY

if importlib.util.find_spec("ray") is None:
    collect_ignore_glob = ["test_*"]  # `make` installs it

RAYLETS = TwoRaylets()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """After the last test here."""
    if nextitem is None or not nextitem.nodeid.startswith(RAY):
        RAYLETS.close()


@pytest.fixture(scope="session")
def raylets() -> Any:
    """The two nodes."""
    return RAYLETS.cluster


@pytest.fixture(scope="session")
def session() -> RaySession:
    """This process's connection to them, which everything here shares."""
    return RAYLETS.session


MakeSpawner = Callable[..., RaySpawner]


@pytest.fixture
def spawner(session: RaySession) -> Iterator[MakeSpawner]:
    """Makes spawners of trivial followers, each closed after the test."""
    with contextlib.ExitStack() as made:

        def make(**given: Any) -> RaySpawner:
            spawner = spawner_of_followers(session, "group", **given)
            made.callback(spawner.close)
            return spawner

        yield make
