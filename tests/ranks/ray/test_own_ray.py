"""A Ray that an engine has started for its ranks is gone with the engine, however that ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.cli.run_cli import ROOT, clean_environ
from tests.ranks.ray.cluster_room import assert_gone


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_a_ray_of_our_own_and_all_its_actors_host_die_with_an_engine_that_is_killed() -> None:
    environ = clean_environ()
    environ.pop("RAY_ADDRESS", None)
    command = [sys.executable, "-m", "tests.ranks.ray.own_ray"]
    engine = subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert engine.stdout is not None
    with contextlib.closing(engine.stdout):
        try:
            told = json.loads(engine.stdout.readline())
            processes = [psutil.Process(pid) for pid in told["processes"]]
        finally:
            os.killpg(engine.pid, signal.SIGKILL)  # as its server does with one that stands still
            engine.wait()
    assert told["rank"] in told["processes"] and len(set(told["hosts"])) == 1
    assert told["keeps_its_handler"] and told["niceness"] == 0
    assert_gone(*processes)
