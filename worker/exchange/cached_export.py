"""One CACHED request: engine events in, messages of a prefill stream out.

Started -> Accepted; Prefilled, if the reader lacks any of it -> BlocksReady; then Done
RequestEnded: before Done an error; after it nothing is pinned any more
"""

from __future__ import annotations

import asyncio

from cluster.errors import InternalError, SplitserveError, from_code
from cluster.wire import span_to_wire
from engine.contract.messages import Prefilled, RequestEnded, Started
from protos.handoff_pb2 import Accepted, Done, PrefillEvent
from worker.engine.listeners import RequestEvent


class CachedExport:
    """The listener. `next_message` gives the stream's messages, then None: the blocks stay pinned
    until the caller lets the engine know that the reader has gone."""

    def __init__(self, *, first_block: int, block_size: int) -> None:
        """`first_block`: the first that the reader lacks."""
        self._first_block, self._block_size = first_block, block_size
        self._messages: asyncio.Queue[PrefillEvent | None] = asyncio.Queue()
        self._ended = asyncio.Event()
        self._error: SplitserveError | None = None
        self._is_done = False
        self.cached_tokens = 0

    async def next_message(self) -> PrefillEvent | None:
        """Raises what ended the request before all was said."""
        message = await self._messages.get()
        if message is None and not self._is_done:
            raise self._error or InternalError("the engine ended an export before it was done")
        return message

    async def wait_ended(self) -> None:
        """The engine has let go of the blocks: its deadline, or its death. Raises that."""
        await self._ended.wait()
        if self._error is not None:
            raise self._error

    def receive(self, event: RequestEvent) -> None:
        """See RequestListener."""
        match event:
            case Started():
                self.cached_tokens = event.cached_tokens
                self._say(PrefillEvent(accepted=Accepted(cached_tokens=event.cached_tokens)))
                if event.cached_tokens // self._block_size <= self._first_block:
                    self._finish()
            case Prefilled():
                self._say(PrefillEvent(blocks_ready=span_to_wire(event.span)))
                self._finish()
            case RequestEnded():
                if event.error_code:
                    self._error = from_code(event.error_code, event.error_message)
                self._ended.set()
                self._messages.put_nowait(None)
            case _:
                raise InternalError(f"an export got a {type(event).__name__}")

    def _finish(self) -> None:
        self._is_done = True
        self._say(PrefillEvent(done=Done()))
        self._messages.put_nowait(None)

    def _say(self, message: PrefillEvent) -> None:
        self._messages.put_nowait(message)
