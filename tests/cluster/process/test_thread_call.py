"""A call in a thread that nobody waits for at the end."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading

import pytest

from cluster.process.background import cancel
from cluster.process.thread_call import in_thread


async def test_a_call_gives_its_result_or_its_error() -> None:
    assert await in_thread("sum", lambda: 1 + 2) == 3
    with pytest.raises(ZeroDivisionError):
        await in_thread("division", lambda: 1 / 0)


async def test_who_is_cancelled_does_not_wait_for_the_call() -> None:
    entered, leave = threading.Event(), threading.Event()

    def call() -> None:
        entered.set()
        leave.wait()

    waiting = asyncio.create_task(in_thread("long", call))
    await asyncio.to_thread(entered.wait)
    await cancel((waiting,))
    assert waiting.cancelled() and not leave.is_set()
    leave.set()


WORKER = """
import asyncio, sys, threading
from concurrent.futures import ThreadPoolExecutor
from cluster.models.cache.store import ModelStore
from cluster.config import WorkerOptions
from decode_worker.service import run

def endless_download(self, name, progress):
    print("fetching", flush=True)
    with ThreadPoolExecutor(1) as pool:  # as the hub's client does
        pool.submit(threading.Event().wait).result()

ModelStore.resolve = endless_download
sys.exit(run(WorkerOptions()))
"""


def test_sigterm_during_a_model_fetch_ends_a_worker_at_once() -> None:
    with subprocess.Popen([sys.executable, "-c", WORKER], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"fetching\n"
        worker.send_signal(signal.SIGTERM)
        try:
            assert worker.wait(timeout=60) == 0
        finally:
            worker.kill()
