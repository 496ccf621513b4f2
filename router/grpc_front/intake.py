"""How the one message of a call comes in: in its turn, measured, and only then taken apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from cluster.errors import InvalidRequest, RequestTooLarge, SplitserveError
from cluster.retry_after import Draw
from cluster.rpc import abort
from router.grpc_front.caller import caller_of
from router.grpc_front.message_gate import GateLimits, MessageGate

Parse = Callable[[bytes], Any]


class Intake:
    """For the calls of some services, which share its places. From the event loop only."""

    def __init__(self, limits: GateLimits, max_message_bytes: int, draw: Draw) -> None:
        """`draw` of how long the refused are to wait."""
        self._gate = MessageGate(limits)
        self._max_message_bytes = max_message_bytes
        self._draw = draw

    async def message(self, context: Any, parse: Parse | None) -> Any:
        """The request, as bytes where there is no `parse`. Ends the call where it does not come,
        or is none."""
        try:
            raw = await self._gate.receive(caller_of(context.peer()), context.read)
            return self._checked(raw, parse)
        except SplitserveError as error:
            await abort(context, error, self._draw)

    def _checked(self, raw: Any, parse: Parse | None) -> Any:
        if raw is grpc.aio.EOF:
            raise InvalidRequest("the call ended without a message")
        if len(raw) > self._max_message_bytes:
            raise RequestTooLarge(
                f"the message has {len(raw)} bytes, and those of this method at most "
                f"{self._max_message_bytes}; send less"
            )
        try:
            return raw if parse is None else parse(raw)
        except DecodeError:
            raise InvalidRequest("the message is not what this method takes") from None
