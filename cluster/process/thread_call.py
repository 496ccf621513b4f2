"""One long call in a thread that the process does not wait for when it ends.

asyncio's own threads, and those of any pool, are joined at the end of the interpreter: a download
would keep a process alive that was told to stop.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from cluster.log_writer import STANDARD_ERROR

Result = TypeVar("Result")


class _CallThread(threading.Thread):
    """Told from other threads by its class."""


async def in_thread(name: str, call: Callable[[], Result]) -> Result:
    """What `call` returns or raises. When this is cancelled, the call is left to itself."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def tell(outcome: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(lambda: None if done.done() else outcome())

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            failure = error
            tell(lambda: done.set_exception(failure))
        else:
            tell(lambda: done.set_result(result))

    _CallThread(target=run, name=name, daemon=True).start()
    return await done


def in_thread_within(timeout_s: float, name: str, call: Callable[[], Result]) -> Result:
    """As `in_thread`, where there is no loop. Raises TimeoutError, and leaves the call alone."""
    done: Future[Result] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    _CallThread(target=run, name=name, daemon=True).start()
    return done.result(timeout_s)


def exit_past_calls(exit_code: int) -> int:
    """At the very end of a process: ends it here when a call was left, with its own pools."""
    if any(isinstance(thread, _CallThread) for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        STANDARD_ERROR.flush()
        os._exit(exit_code)
    return exit_code
