"""The end of a hosted process is told, whatever else goes wrong. No Ray."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

from cluster.launcher.output import ChildOutput
from cluster.launcher.protocol import NodeFacts
from cluster.launcher.ray.hosting import Host
from cluster.launcher.ray.machine import HostFacts, birth_of, is_there, this_machine
from cluster.launcher.ray.remote_process import RemoteProcess

WAITS = "import signal; signal.pause()"
ACTOR = f"""
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {WAITS!r}], start_new_session=True)
print(child.pid, flush=True)
signal.pause()
"""
DEADLINE_S = 60.0


def lost_host(pid: int, *, born: int | None = None) -> Host:
    """An actor of this machine, of which Ray says that it is lost."""

    async def news() -> list[Any]:
        raise RuntimeError("the actor died: its node was lost")

    facts = HostFacts(
        node_id="n1234567890",
        machine=this_machine(),
        host_name="here",
        gpus=(),
        pid=pid,
        uid=os.getuid(),
        born=born if born is not None else birth_of(pid) or 0,
        niceness=0,
        node=NodeFacts(
            address="10.0.0.1", num_cores=1, free_memory_share=1.0, free_memory_share_now=1.0
        ),
    )
    return Host(SimpleNamespace(news=SimpleNamespace(remote=news)), facts)


async def nothing_to_give_back() -> None:
    pass


def remote(host: Host, pid: int, on_end: Any = nothing_to_give_back) -> RemoteProcess:
    output = ChildOutput(None, lambda level, text: None)
    return RemoteProcess(host, pid, output, log="", on_end=on_end)


async def test_what_a_lost_actor_leaves_on_this_machine_has_ended_when_that_is_told() -> None:
    actor = subprocess.Popen([sys.executable, "-c", ACTOR], stdout=subprocess.PIPE, text=True)
    assert actor.stdout is not None
    with actor.stdout:
        hosted = int(actor.stdout.readline())
    os.kill(actor.pid, signal.SIGSTOP)  # it notices nothing by itself
    async with asyncio.timeout(DEADLINE_S):
        ended = await remote(lost_host(actor.pid), hosted).wait()
    assert not is_there(hosted) and not is_there(actor.pid)
    assert ended.status == -signal.SIGKILL and "its node was lost" in ended.cause
    assert actor.wait() == -signal.SIGKILL


async def test_a_process_that_has_a_lost_actors_pid_by_now_is_left_alone() -> None:
    other = subprocess.Popen([sys.executable, "-c", WAITS])
    async with asyncio.timeout(DEADLINE_S):
        await remote(lost_host(other.pid, born=0), other.pid).wait()
    assert other.poll() is None
    other.kill()
    other.wait()


async def test_the_end_is_told_even_if_nothing_can_be_given_back() -> None:
    async def fails() -> None:
        raise RuntimeError("the head is gone")

    process = remote(lost_host(os.getpid(), born=0), os.getpid(), fails)
    async with asyncio.timeout(DEADLINE_S):
        assert (await process.wait()).status == -signal.SIGKILL
        assert [report async for report in process.reports()] == []
