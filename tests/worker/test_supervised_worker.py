"""A worker whose engine, or whose server, stands still is ended and started again."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from cluster.config import ServeOptions
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.launcher.local import LocalLauncher
from cluster.launcher.protocol import ProcessSpec
from cluster.process.backoff import Backoff
from cluster.process.own_python import module_argv, module_environ
from cluster.supervisor.news import News, Promoted, Restarting, Retiring, Serving
from cluster.supervisor.pool import pool_sizes
from cluster.supervisor.reserve import Reserve
from cluster.supervisor.supervisor import Supervisor
from tests.cluster.supervisor.test_supervisor import Newsroom

DEADLINE_S = 60.0
WORKER = ProcessSpec(
    name="decode-0",
    argv=module_argv("tests.worker.supervised_worker"),
    environ=module_environ(),
    silence_s=3.0,
)


@pytest.fixture
def newsroom() -> Newsroom:
    return Newsroom()


@pytest.fixture
async def supervisor(newsroom: Newsroom, tmp_path: Path) -> AsyncIterator[Supervisor]:
    launcher = LocalLauncher(log_dir=tmp_path, on_warning=lambda name, level, text: None)
    running = Supervisor(launcher, newsroom, backoff=lambda: Backoff(0.01, 0.05))
    yield running
    running.kill()
    await running.stop(0.0)


async def restarted(newsroom: Newsroom) -> tuple[Serving, Serving, Restarting]:
    first, second = (await newsroom.wait_for(Serving, 2))[:2]
    (restarting,) = newsroom.of(Restarting)
    assert isinstance(first, Serving) and isinstance(second, Serving)
    assert isinstance(restarting, Restarting)
    assert not psutil.pid_exists(first.pid)
    await until_gone(int(first.facts["engine_pid"]))
    return first, second, restarting


async def until_gone(pid: int) -> None:
    """The kernel ends it with its parent, and takes its time on busy cores."""
    with suppress(psutil.NoSuchProcess):
        await asyncio.to_thread(psutil.Process(pid).wait, DEADLINE_S)


async def test_a_stopped_engine_ends_its_worker_which_is_started_again(
    supervisor: Supervisor, newsroom: Newsroom
) -> None:
    await supervisor.start([[WORKER]])
    (serving,) = newsroom.of(Serving)
    assert isinstance(serving, Serving)
    os.kill(int(serving.facts["engine_pid"]), signal.SIGSTOP)
    began = time.monotonic()
    await newsroom.wait_for(Restarting, 1)
    print(f"noticed and ended after {time.monotonic() - began:.2f} s")
    _, _, restarting = await restarted(newsroom)
    assert restarting.failure.how == "exit code 1"
    assert restarting.failure.kind == "worker_lost"
    assert "stood still for 2 s (--engine-silence-s)" in restarting.failure.cause


async def test_a_stopped_server_is_killed_with_its_engine_and_started_again_alone(
    supervisor: Supervisor, newsroom: Newsroom
) -> None:
    """The worker beside it is well: it is left as it is."""
    await supervisor.start([[WORKER, replace(WORKER, name="decode-1")]])
    serving = {piece.name: piece for piece in newsroom.of(Serving) if isinstance(piece, Serving)}
    os.kill(serving["decode-1"].pid, signal.SIGSTOP)
    again = (await newsroom.wait_for(Serving, 3))[2]
    (restarting,) = newsroom.of(Restarting)
    assert isinstance(again, Serving) and isinstance(restarting, Restarting)
    assert (again.name, restarting.failure.name) == ("decode-1", "decode-1")
    assert not psutil.pid_exists(serving["decode-1"].pid)
    await until_gone(int(serving["decode-1"].facts["engine_pid"]))
    assert psutil.pid_exists(int(serving["decode-0"].facts["engine_pid"]))
    assert (restarting.failure.how, restarting.failure.kind) == ("signal SIGKILL", "stuck")
    assert "no sign of life for 3 s" in restarting.failure.cause


async def test_a_worker_that_hangs_in_its_end_after_its_engine_died_is_gone_and_started_again(
    supervisor: Supervisor, newsroom: Newsroom
) -> None:
    argv = module_argv("tests.worker.supervised_worker", "hangs")
    await supervisor.start([[replace(WORKER, argv=argv)]])
    (serving,) = newsroom.of(Serving)
    assert isinstance(serving, Serving)
    os.kill(int(serving.facts["engine_pid"]), signal.SIGKILL)
    await newsroom.wait_for(Retiring, 1)
    assert newsroom.of(Restarting) == [], "nobody has to wait for its end"
    _, _, restarting = await restarted(newsroom)
    assert restarting.failure.how == "exit code 1"
    assert "does not come to its end" in restarting.failure.cause
    assert "the engine died" in restarting.failure.cause


async def test_a_spare_worker_serves_before_the_lost_one_has_been_started_again(
    newsroom: Newsroom, tmp_path: Path
) -> None:
    def tell(piece: News) -> None:
        reserve(piece)
        newsroom(piece)

    launcher = LocalLauncher(log_dir=tmp_path, on_warning=lambda name, level, text: None)
    running = Supervisor(launcher, tell, backoff=lambda: Backoff(3600.0, 3600.0))
    pools = pool_sizes(ServeOptions(prefill=0, decode=1, warm_spares=1))
    reserve = Reserve(pools, GrpcDialer, running.end, tell)
    argv = module_argv("tests.worker.supervised_worker", "spare")
    names = ("decode-0", "decode-1")
    try:
        await running.start([[replace(WORKER, name=name, argv=argv) for name in names]])
        await reserve.filled()
        (first,) = newsroom.of(Promoted)
        assert isinstance(first, Promoted)
        served = {piece.name: piece for piece in newsroom.of(Serving) if isinstance(piece, Serving)}
        os.kill(int(served[first.name].facts["engine_pid"]), signal.SIGKILL)
        second = (await newsroom.wait_for(Promoted, 2))[1]
        assert second != first and len(newsroom.of(Serving)) == 2
    finally:
        await reserve.close()
        running.kill()
        await running.stop(0.0)
