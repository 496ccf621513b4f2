"""Server-sent events to one client, and a sign of life while there is nothing to say.

    (nothing) --first event or ping--> 200 and headers --> event | ping ... --> [DONE]

Proxies cut a connection that is silent for long, often after 60 s; a prompt may wait longer. A ping
is a comment, which every reader of events skips. Before the first one nothing is sent, so that what
fails early has its own HTTP status; after it an error is an event.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from cluster.process.background import cancel
from router.api.http.exchange import Exchange


class EventStream:
    """An async context around the whole answer; the pings end with it. One writer beside them."""

    def __init__(
        self, exchange: Exchange, ping_interval_s: float, *, is_named: bool = False
    ) -> None:
        """`ping_interval_s`: of silence, before a ping; 0: never. `is_named`: what is sent are
        whole events with names of their own, and no `[DONE]` ends them."""
        self._exchange = exchange
        self._is_named = is_named
        self._interval_s = ping_interval_s
        self._clock = exchange.clock
        self._last_sent_s = self._clock()
        self._is_sending = False
        self._timer: asyncio.TimerHandle | None = None
        self._ping: asyncio.Task[None] | None = None
        self.started = False
        """200 has been said."""

    async def __aenter__(self) -> EventStream:
        if self._interval_s > 0:
            self._arm(self._interval_s)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._ping is not None:
            await cancel([self._ping])

    def takes_now(self) -> bool:
        """Whether `send_now` may be called: nothing has to be waited for."""
        return self.started and self._ping is None and self._exchange.takes_events()

    def send_now(self, data: bytes) -> None:
        """One event."""
        if self._is_named:
            self._exchange.write_block(data)
        else:
            self._exchange.write_event(data)
        self._last_sent_s = self._clock()

    async def send(self, data: bytes) -> None:
        """One event. Raises Cancelled when the client is gone or does not read."""
        if self._ping is not None:
            await self._ping
            self._ping = None
        self._is_sending = True
        await self._start()
        if self._is_named:
            await self._exchange.send_block(data)
        else:
            await self._exchange.send_event(data)
        self._is_sending = False
        self._last_sent_s = self._clock()

    async def end(self) -> None:
        """The closing `[DONE]`, where events have no names."""
        if self._ping is not None:
            await self._ping
        self._is_sending = True
        await self._start()
        if self._is_named:
            await self._exchange.end_blocks()
        else:
            await self._exchange.end_stream()

    @property
    def _has_failed(self) -> bool:
        """The client takes nothing any more."""
        ping = self._ping
        return ping is not None and ping.done() and ping.exception() is not None

    async def _start(self) -> None:
        if not self.started:
            self.started = True
            await self._exchange.start_stream()

    def _arm(self, delay_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        """One timer for the whole answer: events cost it nothing."""
        if self._has_failed:
            return  # the next who sends is told of it
        silent_s = self._clock() - self._last_sent_s
        pings = self._ping is not None and not self._ping.done()
        if silent_s < self._interval_s or self._is_sending or pings:
            self._arm(max(self._interval_s - silent_s, self._interval_s / 10))
            return
        self._ping = asyncio.create_task(self._send_ping())
        self._last_sent_s = self._clock()
        self._arm(self._interval_s)

    async def _send_ping(self) -> None:
        """A client that does not read is dropped by the exchange, which whoever waits notices."""
        await self._start()
        await self._exchange.send_comment(b"ping")
