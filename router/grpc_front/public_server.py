"""A gRPC server that strangers reach, and how it is held to its limits.

    a call comes -> its service is known -> counted -> its message is received in its turn: among
                    those of clients, or of workers, operators and probes -> its method runs

Over the wire nothing differs: a method with one request message reads it itself, as one with a
stream of them would, so that no message is gathered before there is a place for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any

import grpc

from cluster.errors import SlowRequest, SplitserveError
from cluster.retry_after import Draw
from cluster.rpc import RpcServer, abort
from router.front.caller import caller_of
from router.front.refusals import crowded
from router.grpc_front.call_places import CallPlaces
from router.grpc_front.intake import Intake
from router.grpc_front.public_port import CONTROL_MESSAGE_BYTES, PublicPort

MAX_REQUEST_STREAMS = 8
"""Reflection's, which asks in a stream: each may hold a message besides those of the gates."""


def public_server(
    host: str,
    ports: Sequence[int],
    limits: PublicPort,
    *,
    clients: Collection[str],
    draw: Draw,
) -> RpcServer:
    """`ports`: the first is everybody's, others are for those whom connections there must not
    keep out. `clients`: the full names of the services that are theirs; any other is the fleet's
    own. `draw` of how long the refused are to wait."""
    guard = PublicCalls(limits, clients, draw)
    port, *more = ports
    return RpcServer(host, port, limits=limits.options, guards=[guard], more_ports=more)


class PublicCalls(grpc.aio.ServerInterceptor):
    """Stands before every method of one port. Calls from the event loop's thread."""

    def __init__(self, limits: PublicPort, clients: Collection[str], draw: Draw) -> None:
        self._limits = limits
        self._clients = clients
        self._draw = draw
        self._of_clients = Intake(limits.for_clients, limits.max_message_bytes, draw)
        self._of_control = Intake(limits.for_control, CONTROL_MESSAGE_BYTES, draw)
        self._streams = CallPlaces(limits.max_streams)
        self._watches = CallPlaces(limits.max_watches)
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
        intake, streams = self._of_control, self._watches
        if self._is_for_clients(details.method):
            intake, streams = self._of_clients, self._streams
        if handler.response_streaming:
            return self._with_stream(handler, intake, streams)
        return self._short(handler, intake)

    def _is_for_clients(self, method: str) -> bool:
        """`method` as /service/method."""
        return method.strip("/").partition("/")[0] in self._clients

    def _short(self, handler: Any, intake: Intake) -> Any:
        """One message, one answer."""

        async def answer(_requests: Any, context: Any) -> Any:
            message = await intake.message(context, handler.request_deserializer)
            return await handler.unary_unary(message, context)

        return _in_place_of(grpc.stream_unary_rpc_method_handler, answer, handler)

    def _with_stream(self, handler: Any, intake: Intake, places: CallPlaces) -> Any:
        """One message, a stream of answers, which the method writes to its context."""

        async def answer(_requests: Any, context: Any) -> None:
            try:
                with places.taken_by(caller_of(context.peer())):
                    message = await intake.message(context, handler.request_deserializer)
                    await handler.unary_stream(message, context)
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

        return grpc.stream_stream_rpc_method_handler(
            answer,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )


def _in_place_of(make: Callable[..., Any], answer: Any, handler: Any) -> Any:
    """Messages come as bytes: their intake measures them before it takes them apart."""
    return make(answer, response_serializer=handler.response_serializer)
