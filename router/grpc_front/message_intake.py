"""How the one message of a call comes in: in its turn, measured, and only then taken apart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from cluster.errors import InvalidRequest, RequestTooLarge
from router.dispatch.time_limits import TimeLimits
from router.front.caller import caller_of
from router.grpc_front.message_gate import MessageGate
from router.grpc_front.message_reads import MessageReads, OnArrival
from router.tenants.tenant import ANYBODY, Tenant

Parse = Callable[[bytes], Any]
LetIn = Callable[[str | None], Awaitable[Tenant]]
"""Who calls, from what the call says as `authorization`. Raises a SplitserveError."""
_AUTHORIZATION = "authorization"


async def everybody(authorization: str | None) -> Tenant:
    """A LetIn for services that know their callers otherwise."""
    return ANYBODY


def authorization_of(metadata: Iterable[tuple[str, str | bytes]]) -> str | None:
    """The first of that name; None without one."""
    found = (value for name, value in metadata if name == _AUTHORIZATION)
    value = next(found, None)
    return value.decode(errors="replace") if isinstance(value, bytes) else value


class ReceivedMessage:
    """A message as it came, for a method that takes it apart itself."""

    def __init__(self, raw: bytes, limits: TimeLimits, tenant: Tenant) -> None:
        self._raw = raw
        self.tenant = tenant
        """Who calls."""
        self.limits = limits
        """Of its call, from the moment when that came."""

    def take(self) -> bytes:
        """Once: whoever has it lets it go, however long the call lasts."""
        raw, self._raw = self._raw, b""
        return raw


class MessageIntake:
    """For the calls of some services, which share its places. From the event loop only."""

    def __init__(
        self,
        gate: MessageGate,
        reads: MessageReads,
        max_message_bytes: int,
        let_in: LetIn = everybody,
    ) -> None:
        """`let_in` is asked before anything is received."""
        self._let_in = let_in
        self._gate = gate
        self._reads = reads
        self._max_message_bytes = max_message_bytes

    async def message(self, context: Any, parse: Parse | None, limits: TimeLimits) -> Any:
        """The request, ReceivedMessage where there is no `parse`. Raises what the gate and `let_in`
        raise, InvalidRequest and RequestTooLarge; the call has to be ended then."""
        tenant = await self._let_in(authorization_of(context.invocation_metadata()))
        read = partial(self._read, context)
        raw = await self._gate.receive(caller_of(context.peer()), read, limits.to_first_token)
        return ReceivedMessage(raw, limits, tenant) if parse is None else parsed(raw, parse)

    async def _read(self, context: Any, on_arrival: OnArrival) -> bytes:
        raw = await self._reads.message(context, on_arrival)
        if raw is grpc.aio.EOF:
            raise InvalidRequest("the call ended without a message")
        return fitting(raw, self._max_message_bytes)


def fitting(raw: bytes, max_bytes: int) -> bytes:
    """The message, which is not taken apart before. Raises RequestTooLarge."""
    if len(raw) > max_bytes:
        raise RequestTooLarge(
            f"the message has {len(raw)} bytes, and those of this method at most {max_bytes}; "
            "send less"
        )
    return raw


def parsed(raw: bytes, parse: Parse) -> Any:
    """Raises InvalidRequest."""
    try:
        return parse(raw)
    except DecodeError:
        raise InvalidRequest("the message is not what this method takes") from None
