"""What a folder's storage is asked, which may answer late or never: off the event loop, each
question within a limit.

    asked -> answered, or an error of storage
       '---> too late, or nobody waits any more: left to itself, until storage answers; nobody asks
             about the same meanwhile
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from cluster.errors import AdapterUnread
from cluster.process.thread_call import in_thread

MAX_LEFT: Final = 4
"""Questions without an answer: with so many none more is asked. Each keeps a thread, and what it
has read."""
Answer = TypeVar("Answer")


class FolderStorage:
    """Of one worker. From the event loop."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._left: dict[str, threading.Event] = {}
        """By what they are about."""

    async def ask(self, what: str, question: Callable[[], Answer]) -> Answer:
        """In a thread of its own. `what`: it is about. Raises what the question raises, and
        AdapterUnread for an error of storage, and without an answer, or memory or a thread for
        it."""
        self._left = {at: answered for at, answered in self._left.items() if not answered.is_set()}
        if what in self._left:
            raise AdapterUnread(f"{what} is not read: what was asked before has no answer yet")
        if len(self._left) >= MAX_LEFT:
            raise AdapterUnread(
                f"{what} is not read: {MAX_LEFT} questions before have no answer of its storage yet"
            )
        answered = threading.Event()
        try:
            async with asyncio.timeout(self._limit_s):
                return await in_thread("adapter", _telling(answered, question))
        except MemoryError:
            raise AdapterUnread(f"{what} does not fit in memory now") from None
        except TimeoutError:
            self._leave(what, answered)
            raise AdapterUnread(f"{what} could not be read within {self._limit_s:g} s") from None
        except OSError as error:
            raise AdapterUnread(f"{what} cannot be read: {error}") from error
        except asyncio.CancelledError:
            self._leave(what, answered)
            raise
        except RuntimeError as error:
            if answered.is_set():
                raise
            raise AdapterUnread(f"{what} is not read: {error}") from error  # it has no thread

    def _leave(self, what: str, answered: threading.Event) -> None:
        if not answered.is_set():
            self._left[what] = answered


def _telling(answered: threading.Event, question: Callable[[], Answer]) -> Callable[[], Answer]:
    def run() -> Answer:
        try:
            return question()
        finally:
            answered.set()

    return run
