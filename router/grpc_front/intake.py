"""How the one message of a call comes in: in its turn, measured, and only then taken apart."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from cluster.errors import InvalidRequest, RequestTooLarge, SplitserveError
from cluster.retry_after import Draw
from cluster.rpc import abort
from router.front.caller import caller_of
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
            caller, read = caller_of(context.peer()), partial(self._read, context)
            return _parsed(await self._gate.receive(caller, read), parse)
        except SplitserveError as error:
            await abort(context, error, self._draw)

    async def _read(self, context: Any) -> bytes:
        raw: Any = await context.read()
        if raw is grpc.aio.EOF:
            raise InvalidRequest("the call ended without a message")
        if len(raw) > self._max_message_bytes:
            raise RequestTooLarge(
                f"the message has {len(raw)} bytes, and those of this method at most "
                f"{self._max_message_bytes}; send less"
            )
        message: bytes = raw
        return message


def _parsed(raw: bytes, parse: Parse | None) -> Any:
    try:
        return raw if parse is None else parse(raw)
    except DecodeError:
        raise InvalidRequest("the message is not what this method takes") from None
