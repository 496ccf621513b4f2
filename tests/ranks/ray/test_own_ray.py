"""A Ray that is started for the occasion: by whoever needs one, and gone with it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.run_cli import ROOT, clean_environ
from tests.ranks.ray.cluster_room import assert_gone


@contextmanager
def engine(how: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """One with a Ray of its own, and what it has told."""
    environ = clean_environ()
    environ.pop("RAY_ADDRESS", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.ranks.ray.own_ray", how],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        yield process, json.loads(process.stdout.readline())
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def folders_of_rays() -> set[Path]:
    return set(Path("/tmp").glob("splitserve-ray-*"))


def test_a_ray_of_our_own_is_stopped_with_the_group_and_leaves_nothing() -> None:
    before = folders_of_rays()
    with engine("close") as (process, told):
        assert process.stdout is not None
        assert told["rank"] in told["processes"] and len(set(told["hosts"])) == 1
        assert told["keeps_its_handler"]
        assert json.loads(process.stdout.readline())["left"] == []
        assert process.wait(timeout=60) == 0
    assert folders_of_rays() <= before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_a_ray_of_our_own_and_all_its_actors_host_die_with_an_engine_that_is_killed() -> None:
    with engine("wait") as (process, told):
        processes = [psutil.Process(pid) for pid in told["processes"]]
        os.killpg(process.pid, signal.SIGKILL)  # as its server does with an engine that stands
        assert_gone(*processes)
