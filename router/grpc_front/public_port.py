"""What strangers may do to a gRPC port, and how it is held to.

    a call comes -> counted -> its message is received in its turn (MessageGate) -> its method runs

Over the wire nothing differs: a method with one request message reads it itself, as one with a
stream of them would, so that no message is gathered before there is a place for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from cluster.errors import InvalidRequest, SlowRequest, SplitserveError
from cluster.retry_after import Draw
from cluster.rpc import RpcServer, abort
from router.front.refusals import crowded
from router.grpc_front.message_gate import MessageGate

MAX_REQUEST_STREAMS = 8
"""Reflection's, which asks in a stream: each may hold a message besides those of the gate."""
WINDOW_BYTES = 64 * 1024
"""Of a message that is not received yet."""
_NO_COMPRESSION = 1
"""The limit of a message is that of its packed form: 60 kB of gzip would be 60 MB here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicPort:
    """The limits of a port."""

    max_message_bytes: int
    """A larger one ends its call with RESOURCE_EXHAUSTED, unread; a compressed one with
    UNIMPLEMENTED."""
    max_receiving: int = 28
    """Messages that are received at once; others wait, or take the place of a slow one."""
    receive_timeout_s: float = 10.0
    """For one message."""
    max_streams: int = 4096
    """Calls that answer in a stream (Generate, Health.Watch), over all connections."""
    max_calls_per_connection: int = 128
    max_connections: int = 1024
    """More are closed as they come."""
    idle_s: float = 300.0
    """A connection without a call is closed after so long; its client opens another when needed."""
    max_ping_strikes: int = 8
    """Pings that come sooner than half a second after the last, before the connection is closed.
    Our own workers ping once a second."""

    @property
    def options(self) -> list[tuple[str, int]]:
        """As gRPC takes them."""
        return [
            ("grpc.compression_enabled_algorithms_bitset", _NO_COMPRESSION),
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.max_concurrent_streams", self.max_calls_per_connection),
            ("grpc.http2.bdp_probe", 0),  # else a window of 4 MiB for what nobody has asked for
            ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
            ("grpc.max_allowed_incoming_connections", self.max_connections),
            ("grpc.max_connection_idle_ms", int(self.idle_s * 1000)),
            ("grpc.server_handshake_timeout_ms", int(self.receive_timeout_s * 1000)),
            ("grpc.http2.max_ping_strikes", self.max_ping_strikes),
        ]


def public_server(host: str, port: int, limits: PublicPort, *, draw: Draw) -> RpcServer:
    """A server that clients reach, not only our own processes; `draw` of how long the refused are
    to wait."""
    return RpcServer(host, port, limits=limits.options, guards=[PublicCalls(limits, draw)])


class PublicCalls(grpc.aio.ServerInterceptor):
    """Stands before every method of one port. Calls from the event loop's thread."""

    def __init__(self, limits: PublicPort, draw: Draw) -> None:
        self._limits = limits
        self._draw = draw
        self._gate = MessageGate(limits.max_receiving, limits.receive_timeout_s)
        self._num_streams = 0
        self._num_request_streams = 0

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        """The method behind its limits; None for one that is not there."""
        handler = await continuation(details)
        if handler is None:
            return None
        if handler.request_streaming:
            return self._with_request_stream(handler)
        return self._with_stream(handler) if handler.response_streaming else self._short(handler)

    def _short(self, handler: Any) -> Any:
        """One message, one answer."""

        async def answer(_requests: Any, context: Any) -> Any:
            return await handler.unary_unary(await self._message(context), context)

        return _in_place_of(grpc.stream_unary_rpc_method_handler, answer, handler)

    def _with_stream(self, handler: Any) -> Any:
        """One message, a stream of answers, which the method writes to its context."""

        async def answer(_requests: Any, context: Any) -> None:
            try:
                with self._counted():
                    await handler.unary_stream(await self._message(context), context)
            except SplitserveError as error:
                await abort(context, error, self._draw)

        return _in_place_of(grpc.stream_stream_rpc_method_handler, answer, handler)

    def _with_request_stream(self, handler: Any) -> Any:
        """A short dialogue."""

        async def answer(requests: Any, context: Any) -> AsyncIterator[Any]:
            if self._num_request_streams >= MAX_REQUEST_STREAMS:
                await abort(context, crowded("calls"), self._draw)
            self._num_request_streams += 1
            try:
                async with asyncio.timeout(self._limits.receive_timeout_s):
                    async for response in handler.stream_stream(requests, context):
                        yield response
            except TimeoutError:
                await abort(context, SlowRequest("the dialogue took too long; ask again"))
            finally:
                self._num_request_streams -= 1

        return _in_place_of(grpc.stream_stream_rpc_method_handler, answer, handler)

    async def _message(self, context: Any) -> Any:
        """The one request. Ends the call where it does not come."""
        try:
            message = await self._gate.receive(context.peer(), context.read)
            if message is grpc.aio.EOF:
                raise InvalidRequest("the call ended without a message")
        except SplitserveError as error:
            await abort(context, error, self._draw)
        return message

    @contextmanager
    def _counted(self) -> Iterator[None]:
        if self._num_streams >= self._limits.max_streams:
            raise crowded("calls")
        self._num_streams += 1
        try:
            yield
        finally:
            self._num_streams -= 1


def _in_place_of(make: Callable[..., Any], answer: Any, handler: Any) -> Any:
    return make(
        answer,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )
