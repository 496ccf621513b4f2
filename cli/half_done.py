"""What changes a fleet in several steps ends alike for Ctrl-C, SIGTERM and a terminal that closes:
its task is cancelled, so that it tells what is half done and how to go on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import typer

_ENDS = (signal.SIGTERM, signal.SIGHUP)
_EXIT_CODE_OF_SIGNALS = 128
"""And the signal's number, as shells have it."""


@contextmanager
def ends_as_by_ctrl_c() -> Iterator[None]:
    """From a task of the main thread's loop; asyncio itself does the same for Ctrl-C. What this
    process was started to ignore (nohup) it ignores. Raises typer.Exit after such a signal."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "called from a task"
    heard: list[int] = []

    def end(number: int) -> None:
        if not heard:
            task.cancel()
        heard.append(number)

    numbers = [each for each in _ENDS if signal.getsignal(each) is not signal.SIG_IGN]
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        loop.add_signal_handler(number, partial(end, number))
    try:
        yield
    except asyncio.CancelledError:
        if not heard:
            raise
        raise typer.Exit(_EXIT_CODE_OF_SIGNALS + heard[0]) from None
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
