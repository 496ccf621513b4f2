"""Answers that have been written and not been read: how long, and how many bytes at one door.

answered -> all of it is gone: nothing to do
         '-> nothing of it goes for so long: the connection is aborted
a connection's buffer is full -> counted -> drained: counted no more
                                        '-> too much in all: whose address has most is aborted
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Protocol

from router.front.caller import Caller
from router.front.limits import DoorLimits

PROGRESS_BYTES = 64 * 1024
"""Of an answer whose last word is written: so much in each of the reader's timeouts."""


class AnsweringConnection(Protocol):
    """A connection."""

    @property
    def caller(self) -> Caller:
        """At its other end."""

    @property
    def transport(self) -> asyncio.Transport:
        """With what is written and not sent."""


class UnreadAnswers:
    """Of one door: connections that have more unread than a buffer. From the event loop only."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._sizes: dict[AnsweringConnection, int] = {}
        self.num_bytes = 0

    def waits(self, connection: AnsweringConnection) -> None:
        """What was written to it is more than its buffer takes."""
        self.gone(connection)
        self._set(connection)
        if self.num_bytes > self._max_bytes:
            self._look_again()
        while self.num_bytes > self._max_bytes:
            largest = self._largest()
            self.gone(largest)
            largest.transport.abort()

    def gone(self, connection: AnsweringConnection) -> None:
        """Read, or lost. Idempotent."""
        self.num_bytes -= self._sizes.pop(connection, 0)

    def _set(self, connection: AnsweringConnection) -> None:
        size = connection.transport.get_write_buffer_size()
        self._sizes[connection] = size
        self.num_bytes += size

    def _look_again(self) -> None:
        """Some have been read in part since they were counted."""
        connections, self._sizes, self.num_bytes = list(self._sizes), {}, 0
        for each in connections:
            self._set(each)

    def _largest(self) -> AnsweringConnection:
        """Of the address that has most."""
        by_address = Counter[str]()
        for each, size in self._sizes.items():
            by_address[each.caller.address] += size
        return max(
            self._sizes, key=lambda each: (by_address[each.caller.address], self._sizes[each])
        )


class AnswerWatch:
    """Of one connection: one timer, however many answers."""

    def __init__(self, transport: asyncio.Transport, limits: DoorLimits) -> None:
        self._transport = transport
        self._limits = limits
        self._unread_bytes = 0
        self._since_s = 0.0
        self._is_over = True
        self._timer: asyncio.TimerHandle | None = None

    def begins(self) -> None:
        """Another answer: whoever writes it waits for its reader, and for what is before it."""
        self._is_over = False

    def answered(self) -> None:
        """Nobody writes any more, and so nobody waits."""
        self._is_over = True
        self._look_from_now()
        if self._timer is None:
            self._arm(self._limits.reader_timeout_s)

    def end(self) -> None:
        """Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_from_now(self) -> None:
        self._unread_bytes = self._transport.get_write_buffer_size()
        self._since_s = self._limits.clock()

    def _arm(self, delay_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        self._timer = None
        num_bytes = self._transport.get_write_buffer_size()
        if not self._is_over or not num_bytes:
            return
        timeout_s = self._limits.reader_timeout_s
        left_s = self._since_s + timeout_s - self._limits.clock()
        if left_s > 0:
            self._arm(left_s)
        elif num_bytes > self._unread_bytes - PROGRESS_BYTES:
            self._transport.abort()
        else:
            self._look_from_now()
            self._arm(timeout_s)
