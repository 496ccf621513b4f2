"""Messages as gRPC hands them out: each is read to its end, and large ones come in one by one.

    begun -> waits for its bytes -> in its turn: copied out of gRPC -> whole
                 '--> its caller leaves -> in the background: until its call has ended

grpc.aio frees what a read has gathered where the read itself goes on. One that is cancelled never
does, so that a message that was whole by then is lost for good. And it copies each message on the
event loop, 2 ms for 8 MB, all that have arrived in the same turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from cluster.process.background import Background
from cluster.process.loop_share import LoopShare

OnArrival = Callable[[], None]


def _nobody_asks() -> None:
    pass


class MessageReads:
    """Of calls that share their turns. From the event loop only."""

    def __init__(self, background: Background, share: LoopShare) -> None:
        """`background` owns the reads whose callers have left: they end with their calls."""
        self._background = background
        self._share = share

    async def message(self, context: Any, on_arrival: OnArrival = _nobody_asks) -> Any:
        """The call's next one as its method takes it, or grpc.aio.EOF; `on_arrival` is called once
        it is whole and only waits for its turn. Whoever is cancelled here has to end the call: the
        read ends with it."""
        read = _Read(context)
        try:
            while (waits_for := read.waits_for) is not None:
                with suppress(Exception):  # the read itself raises it as it goes on
                    await asyncio.shield(waits_for)
                on_arrival()
                await self._share.breathe()
                read.go_on()
        except asyncio.CancelledError:
            self._background.once("a message that nobody waits for", read.finish())
            raise
        return read.message


class _Read:
    """One read, driven by hand: what it waits for is never cancelled."""

    def __init__(self, context: Any) -> None:
        self._steps = context.read()
        self.waits_for: asyncio.Future[object] | None = None
        """None: it has ended."""
        self.message: Any = None
        self.go_on()

    def go_on(self) -> None:
        """Once what it waits for is there. Raises what the read raises."""
        try:
            self.waits_for = self._steps.send(None)
        except StopIteration as end:
            self.waits_for, self.message = None, end.value
        except BaseException:
            self.waits_for = None
            raise

    async def finish(self) -> None:
        """Its message is nobody's, and neither is its failure: the call has ended."""
        while self.waits_for is not None:
            await asyncio.wait((self.waits_for,))
            with suppress(Exception, asyncio.CancelledError):
                self.go_on()
        self.message = None
