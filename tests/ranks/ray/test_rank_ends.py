"""What a conductor hears of ranks that actors host: their log, and how they end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from cluster.launcher.ray.session import RaySession
from ranks.spawner import Spawner
from tests.ranks.ray.launches import Heard, end_of, launch
from tests.ranks.ray.two_raylets import spawner_of_followers


@pytest.fixture(scope="module")
def ranks(session: RaySession) -> Iterator[Spawner]:
    """Of one group: a test takes a rank that no other takes."""
    spawner = spawner_of_followers(session, "shared")
    spawner.place(4)
    yield spawner
    spawner.close()


def test_a_rank_is_told_its_launch_and_its_log_comes_into_ours(
    ranks: Spawner, capfd: pytest.CaptureFixture[str]
) -> None:
    rank, heard = ranks.start(launch(1, world_size=4)), Heard(capfd)
    assert int(heard.said(rank, r"rank 1 of 4, devices '', pid (\d+)")) == rank.pid
    assert rank.poll() is None


def test_the_end_of_a_rank_is_told_with_its_code_and_last_lines(ranks: Spawner) -> None:
    rank = ranks.start(launch(2, "exit 7"))
    end = end_of(rank)
    assert end.ending == "exit code 7" and end.is_own_doing
    assert end.last_lines[-2:] == ("something is wrong", "it is the end")
    assert rank.poll() == end


def test_a_rank_that_is_killed_is_told_with_the_signal(ranks: Spawner) -> None:
    rank = ranks.start(launch(3))
    assert rank.pid is not None
    os.kill(rank.pid, signal.SIGKILL)
    end = end_of(rank)
    assert end.ending == "signal SIGKILL" and not end.is_own_doing
