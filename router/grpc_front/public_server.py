"""A gRPC server that strangers reach, and how it is held to its limits.

    a call comes -> its service is known -> counted -> its message is received in its turn: among
                    those of clients, or of workers, operators and probes -> its method runs

Over the wire nothing differs: a method with one request message reads it itself, as one with a
stream of them would, so that no message is gathered before there is a place for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any

import grpc

from cluster.deadline import MAX_TIMEOUT_S
from cluster.errors import SplitserveError
from cluster.join_guard import join_guards
from cluster.process.background import Background
from cluster.process.loop_share import LoopShare
from cluster.retry_after import Draw
from cluster.rpc import RpcServer, abort, without_trace
from router.dispatch.time_limits import DefaultTimes, TimeLimits
from router.front.caller import caller_of
from router.grpc_front.call_places import CallPlaces
from router.grpc_front.dialogue import talk
from router.grpc_front.message_gate import MessageGate
from router.grpc_front.message_intake import LetIn, MessageIntake
from router.grpc_front.message_reads import MessageReads
from router.grpc_front.public_port import CONTROL_MESSAGE_BYTES, PublicPort
from router.grpc_front.standing import ClientStanding, ControlStanding

GuardedMethod = Callable[[Any, TimeLimits], Awaitable[Any]]
"""A method behind its limits: its call's context, and what time it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTerms:
    """What calls at a public port are held to, besides its limits."""

    clients: Collection[str]
    """The full names of the services that are theirs; any other is the fleet's own."""
    let_in: LetIn
    """Who calls one of theirs; asked before its message is received."""
    times: DefaultTimes
    draw: Draw
    """Of how long the refused are to wait."""
    background: Background
    """Owns reads that nobody waits for any more; to be closed after the server."""
    share: LoopShare
    """Of the loop, with all others who work there a little at a time."""


def public_server(
    host: str,
    port: int,
    limits: PublicPort,
    terms: CallTerms,
    credentials: grpc.ServerCredentials | None = None,
) -> RpcServer:
    """With its limits before every method."""
    guards = [*join_guards(open_to=terms.clients), PublicCalls(limits, terms)]
    return RpcServer(host, port, limits=limits.options, guards=guards, credentials=credentials)


class PublicCalls(grpc.aio.ServerInterceptor):
    """Stands before every method of one port. Calls from the event loop's thread."""

    def __init__(self, limits: PublicPort, terms: CallTerms) -> None:
        self._limits = limits
        self._terms = terms
        clock, background = terms.times.clock, terms.background
        reads = MessageReads(background, terms.share)
        standing = ClientStanding(limits.lost_time, clock)
        gate = MessageGate(limits.for_clients, standing, clock)
        self._of_clients = MessageIntake(gate, reads, limits.max_message_bytes, terms.let_in)
        own_gate = MessageGate(limits.for_control, ControlStanding(limits.max_connections), clock)
        self._of_control = MessageIntake(own_gate, reads, CONTROL_MESSAGE_BYTES)
        self._streams = CallPlaces(limits.max_streams)
        self._watches = CallPlaces(limits.max_watches)
        self._dialogues = CallPlaces(limits.max_dialogues)
        self._questions = reads

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        """The method behind its limits; None for one that is not there."""
        handler = await continuation(details)
        if handler is None:
            return None
        if handler.request_streaming:
            return self._dialogue(handler)
        if self._is_for_clients(details.method):
            intake, places = self._of_clients, self._streams
        else:
            intake, places = self._of_control, self._watches
        if handler.response_streaming:
            return self._with_stream(handler, intake, places)
        return self._short(handler, intake)

    def _is_for_clients(self, method: str) -> bool:
        """`method` as /service/method."""
        return method.strip("/").partition("/")[0] in self._terms.clients

    def _short(self, handler: Any, intake: MessageIntake) -> Any:
        """One message, one answer."""

        async def run(context: Any, limits: TimeLimits) -> Any:
            parse = handler.request_deserializer
            return await handler.unary_unary(await intake.message(context, parse, limits), context)

        return self._in_place_of(handler, grpc.stream_unary_rpc_method_handler, run)

    def _with_stream(self, handler: Any, intake: MessageIntake, places: CallPlaces) -> Any:
        """One message, a stream of answers, which the method writes to its context."""

        async def run(context: Any, limits: TimeLimits) -> None:
            parse = handler.request_deserializer
            with places.taken_by(caller_of(context.peer())):
                await handler.unary_stream(await intake.message(context, parse, limits), context)

        return self._in_place_of(handler, grpc.stream_stream_rpc_method_handler, run)

    def _dialogue(self, handler: Any) -> Any:
        """Short questions, each with its answer."""

        async def run(context: Any, _limits: TimeLimits) -> None:
            with self._dialogues.taken_by(caller_of(context.peer())):
                await talk(handler, context, self._questions, self._limits.receive_timeout_s)

        return self._in_place_of(handler, grpc.stream_stream_rpc_method_handler, run)

    def _in_place_of(self, handler: Any, make: Callable[..., Any], run: GuardedMethod) -> Any:
        """Messages come as bytes: their intake measures them before it takes them apart."""

        async def answer(_requests: Any, context: Any) -> Any:
            try:
                return await run(context, self._limits_of(context))
            except SplitserveError as error:
                refusal = error
            except grpc.aio.AbortError as ended:  # gRPC keeps it with the call
                raise without_trace(ended) from None
            return await abort(context, refusal, self._terms.draw)

        return make(answer, response_serializer=handler.response_serializer)

    def _limits_of(self, context: Any) -> TimeLimits:
        """From now on, before anything is waited for."""
        times, remaining_s = self._terms.times, context.time_remaining()
        asked_s = None if remaining_s is None else min(remaining_s, MAX_TIMEOUT_S)
        return times.limits(times.clock(), asked_s)
