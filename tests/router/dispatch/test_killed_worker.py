"""A decode worker that dies without a word."""

import asyncio
import signal
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from cluster.config import RouterOptions
from cluster.errors import WorkerLost
from cluster.sampling import SamplingParams
from cluster.world import World
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane
from router.dispatch.stream import RoutedRequest
from router.fleet import fleet
from tests.router.dispatch_bench import time_limits
from tests.router.fake_decode_worker import FakeDecodeWorker, until

ROOT = Path(__file__).parents[3]
LIMIT_S = 60.0
"""A hang is found by keepalive, in three seconds, and a death at once: on a busy machine as well,
and long before the request's deadline."""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_request_on_a_worker_that_dies_or_hangs_ends_with_worker_lost_in_time(
    how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "NO_WORKER_GRACE_S", 0.05)
    command = (sys.executable, "-m", "tests.router.decode_worker_process")
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    plane = FleetPlane(RouterOptions(), OwnModel(), World())
    try:
        description = FakeDecodeWorker()
        description.port = int(await asyncio.to_thread(process.stdout.readline))
        await plane.store.join(description.member())
        await until(lambda: plane.why_not_ready() is None)
        request = RoutedRequest(
            request_id="r1",
            token_ids=[1, 2, 3],
            sampling=SamplingParams(max_tokens=50),
            limits=time_limits(10 * LIMIT_S),
        )
        async with aclosing(plane.source.generate(request)) as events:
            await anext(events)
            process.send_signal(how)
            async with asyncio.timeout(LIMIT_S):
                with pytest.raises(WorkerLost):
                    await anext(events)
    finally:
        process.kill()
        process.communicate()
        await plane.close()
