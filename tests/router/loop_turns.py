"""How long the event loop is held, turn by turn."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest


@dataclass(slots=True)
class Turns:
    """Of callbacks since the block began, by the loop's own processor time: other processes, and
    other threads, do not count."""

    longest_s: float = 0.0


@contextmanager
def measured_turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[Turns]:
    """Until the block ends; for loops of asyncio's own."""
    turns, run = Turns(), asyncio.events.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        start_s = time.thread_time()
        run(handle)
        turns.longest_s = max(turns.longest_s, time.thread_time() - start_s)

    with monkeypatch.context() as patched:
        patched.setattr(asyncio.events.Handle, "_run", timed)
        yield turns
