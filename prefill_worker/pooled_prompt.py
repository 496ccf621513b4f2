"""One POOL request: engine events in, one answer out.

SUBMITTED --Started--> COMPUTING --Pooled--> answered
    any --RequestEnded with an error--> failed
"""

from __future__ import annotations

import asyncio

from cluster.deadline import Clock
from cluster.errors import InternalError, SplitserveError, from_code
from cluster.generation import Timing, Usage
from engine.contract.messages import Pooled, QueuePlace, RequestEnded, Started
from protos import handoff_pb2
from worker.engine.listeners import RequestEvent


class PooledPrompt:
    """The listener of one prompt that is pooled. All calls from the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.submitted_s = clock()
        self.began_s: float | None = None
        """The engine has; None: it has not."""
        self.usage = Usage(0, 0, 0)
        self.timing = Timing()
        self.error: SplitserveError | None = None
        """What ended it; None: nothing, or whoever asked."""
        self._values = b""
        self._ended = asyncio.Event()

    async def answer(self) -> handoff_pb2.PoolResponse:
        """Raises what the prompt ended with."""
        await self._ended.wait()
        if self.error is not None:
            raise self.error
        return handoff_pb2.PoolResponse(
            values=self._values,
            cached_tokens=self.usage.cached_tokens,
            queue_ms=self.timing.queue_ms,
            prefill_ms=self.timing.prefill_ms,
        )

    def receive(self, event: RequestEvent) -> None:
        """See RequestListener."""
        match event:
            case Started():
                self.began_s = self.submitted_s + event.queue_ms / 1000
            case Pooled():
                self._values = event.values
            case RequestEnded():
                self._end(event)
            case QueuePlace():
                pass
            case _:
                raise InternalError(f"a prompt that is pooled got a {type(event).__name__}")

    def _end(self, event: RequestEnded) -> None:
        self.usage = event.usage
        self.timing = Timing(queue_ms=event.queue_ms, prefill_ms=event.prefill_ms)
        if event.error_code:
            self.error = from_code(event.error_code, event.error_message)
        elif not self._values:
            self.error = InternalError("the engine ended a prompt before it was pooled")
        self._ended.set()
