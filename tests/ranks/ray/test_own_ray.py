"""A Ray that an engine has started for its ranks is gone with the engine, however that ends."""

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
from tests.free_ports import free_port
from tests.ranks.ray.cluster_room import assert_gone

HEAD, OTHER = "127.3.0.1", "127.3.0.2"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_a_ray_of_our_own_and_all_its_actors_host_die_with_an_engine_that_is_killed() -> None:
    with engine_killed() as told:
        processes = [psutil.Process(pid) for pid in told["processes"]]
    assert told["rank"] in told["processes"] and len(set(told["hosts"])) == 1
    assert told["keeps_its_handler"] and told["niceness"] == 0
    assert_gone(*processes)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="all of 127/8 is Linux's")
def test_a_host_that_joins_a_ray_of_our_own_by_its_token_gets_the_rank_that_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", os.urandom(16).hex())
    port = free_port(HEAD)
    with joined(f"{HEAD}:{port}") as host, engine_killed(f"{HEAD}:{port}") as told:
        assert told["addresses"] == {"0": HEAD, "1": OTHER}
        assert told["rank"] not in told["processes"], "it is the other host's"
        rank = psutil.Process(told["rank"])
        assert host in {parent.pid for parent in rank.parents()}
    assert_gone(rank)


@contextmanager
def engine_killed(*words: str) -> Iterator[dict[str, Any]]:
    """What it has told; at the end it is killed."""
    environ = clean_environ()
    environ.pop("RAY_ADDRESS", None)
    command = [sys.executable, "-m", "tests.ranks.ray.own_ray", *words]
    engine = subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert engine.stdout is not None
    with contextlib.closing(engine.stdout):
        try:
            yield json.loads(engine.stdout.readline())
        finally:
            os.killpg(engine.pid, signal.SIGKILL)  # as its server does with one that stands still
            engine.wait()


@contextmanager
def joined(head: str) -> Iterator[int]:
    """A host, as a pod of a group has it: it comes when somebody listens, and stays. Its pid."""
    host, _, port = head.partition(":")
    script = """
        until (exec 3<>/dev/tcp/$0/$1) 2>/dev/null; do sleep 0.2; done
        exec ray start --address=$0:$1 --node-ip-address=$2 --num-cpus=0 \\
          --resources='{"splitserve_rank": 1}' --object-store-memory=83886080 --block
    """
    environ = clean_environ()
    environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    joining = subprocess.Popen(
        ["bash", "-c", script, host, port, OTHER],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield joining.pid
    finally:
        left = psutil.Process(joining.pid).children(recursive=True)
        os.killpg(joining.pid, signal.SIGKILL)
        joining.wait()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
