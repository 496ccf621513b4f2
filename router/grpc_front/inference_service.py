"""The gRPC service `splitserve.v1.Inference` over the same pipeline as HTTP."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import grpc
from msgspec.structs import replace

from cluster.errors import RequestTooLarge, SplitserveError
from cluster.logs import bind_request, get_logger
from cluster.rpc import abort
from protos import inference_pb2
from router.dispatch.stream import Newcomer
from router.front.caller import Caller, caller_of
from router.front.doors import DoorContext
from router.front.generation_request import ChatPrompt, GenerationRequest, Prompt
from router.front.prepared_generation import PreparedGeneration
from router.front.reader_patience import ReaderPatience
from router.front.refusals import internal_error
from router.front.resumption import Resumable
from router.front.text_work import LARGE_BODY_BYTES, Door
from router.grpc_front.event_messages import responses_of
from router.grpc_front.message_intake import ReceivedMessage, authorization_of
from router.grpc_front.pooled_calls import PooledCalls, pooled_methods
from router.grpc_front.request_reading import parse_message, prompt_of, read_request
from router.grpc_front.resumable_calls import DOOR, rest_of, resumable_call
from router.telemetry.request_ids import request_ids
from router.telemetry.request_trace import RequestTrace
from router.telemetry.request_tracing import CHAT, TEXT_COMPLETION, RequestTracing

SERVICE_NAME = "splitserve.v1.Inference"
_log = get_logger("router.grpc")


class InferenceService:
    """Register with `add_inference`."""

    def __init__(self, door: DoorContext) -> None:
        self._door = door
        self.pooled = PooledCalls(door)
        """The methods for embeddings and scores."""

    async def Generate(self, received: ReceivedMessage, context: Any) -> None:
        """Streams one generation; the client's cancellation closes it upstream.

        `received` is a GenerateRequest as it came: what is large is not parsed on this loop.
        """
        try:
            with self._door.in_flight.admit():
                await self._generate(received, context)
        except SplitserveError as error:
            await abort(context, error, self._door.chance.random)
        except Exception:
            _log.exception("a call failed inside the router; its client gets internal_error")
            await abort(context, internal_error())

    async def ListModels(
        self, _request: inference_pb2.ListModelsRequest, context: Any
    ) -> inference_pb2.ListModelsResponse:
        """The one model, then its adapters that the key is for."""
        model = self._door.model
        try:
            tenant = self._door.who_asks(authorization_of(context.invocation_metadata()))
        except SplitserveError as error:  # its key was taken back since it was let in
            await abort(context, error)
        limit = model.max_context_tokens
        listed = [inference_pb2.Model(id=model.name, max_context_tokens=limit)]
        listed += [
            inference_pb2.Model(id=item.name, max_context_tokens=limit, parent=model.name)
            for item in model.all_adapters()
            if tenant.may_ask(item.name)
        ]
        return inference_pb2.ListModelsResponse(models=listed)

    async def _generate(self, received: ReceivedMessage, context: Any) -> None:
        limits = received.limits
        caller = caller_of(context.peer())
        message, prompt = await self._read(received, caller)
        ids = request_ids(message.request_id or None, self._door.draw)
        with bind_request(ids.internal):
            if prompt is None:
                resumed = await self._door.resuming().resume(
                    message.last_event_id, received.tenant, ids.internal, limits, door=DOOR
                )
                await self._tell(resumed.prepared, resumed, ids.echoed, context)
                return
            self._check_room(ids.internal, received)
            wanted = read_request(
                message,
                prompt,
                ids.internal,
                tenant=received.tenant,
                caller=caller,
                limits=limits,
                defaults=self._door.model.defaults,
                adapter=self._door.model.adapter_name_in(message.model),
            )
            if self._door.tracing is not None:
                wanted = replace(wanted, trace=_trace(self._door.tracing, wanted, context))
            prepared = await self._door.pipeline.prepare(wanted)
            tenant, resumption = received.tenant, self._door.resumption
            resumable = resumable_call(message, prepared, tenant, resumption)
            await self._tell(prepared, resumable, ids.echoed, context)

    async def _tell(
        self,
        prepared: PreparedGeneration,
        resumable: Resumable | None,
        request_id: str,
        context: Any,
    ) -> None:
        if resumable is not None:
            prepared = resumable.prepared
        async with (
            self._patience() as patience,
            aclosing(self._door.pipeline.stream(prepared)) as events,
        ):
            async for event in events:
                if resumable is None:
                    responses = responses_of(event, request_id)
                else:
                    responses = rest_of(event, resumable, request_id)
                async for response in responses:
                    await patience.write(context.write(response))

    def _patience(self) -> ReaderPatience:
        limits = self._door.door_limits
        return ReaderPatience(limits.reader_timeout_s, limits.clock)

    def _check_room(self, request_id: str, received: ReceivedMessage) -> None:
        """Before its prompt is anybody's work."""
        newcomer = Newcomer(request_id, received.tenant, received.limits)
        self._door.pipeline.check_room(newcomer)

    async def _read(
        self, received: ReceivedMessage, caller: Caller
    ) -> tuple[inference_pb2.GenerateRequest, Prompt | None]:
        """No prompt: it is for the rest of another call. What is large is refused before anybody
        has looked into it, its id included."""
        raw, limits = received.take(), received.limits
        limit = self._door.door_limits.max_body_bytes
        if len(raw) > limit:
            raise RequestTooLarge(f"the message has more than {limit} bytes; shorten the request")
        if len(raw) > LARGE_BODY_BYTES:
            self._check_room(request_ids(None, self._door.draw).internal, received)
            with self._door.bodies.open(lambda: caller) as held:
                held.grow_to(len(raw))
                large = await self._door.pipeline.read_large(
                    Door.GRPC, raw, limits.to_first_token, caller
                )
            return parse_message(large.rest), large.prompts[0]
        await self._door.share.breathe()
        message = parse_message(raw)
        if message.last_event_id:
            return message, None
        return message, prompt_of(message, self._door.model)


def _trace(tracing: RequestTracing, wanted: GenerationRequest, context: Any) -> RequestTrace | None:
    """As the call's metadata say."""
    said = [
        (name, value) for name, value in context.invocation_metadata() if isinstance(value, str)
    ]
    parents, states = (
        [value for name, value in said if name == wanted_name]
        for wanted_name in ("traceparent", "tracestate")
    )
    operation = CHAT if isinstance(wanted.prompt, ChatPrompt) else TEXT_COMPLETION
    return tracing.begin(parents, states, operation)


def add_inference(service: InferenceService, server: Any) -> None:
    """As the generated function, but for Generate's message, which is a ReceivedMessage: for a
    server of strangers."""
    generate = grpc.unary_stream_rpc_method_handler(
        service.Generate,
        response_serializer=inference_pb2.GenerateResponse.SerializeToString,
    )
    list_models = grpc.unary_unary_rpc_method_handler(
        service.ListModels,
        request_deserializer=inference_pb2.ListModelsRequest.FromString,
        response_serializer=inference_pb2.ListModelsResponse.SerializeToString,
    )
    methods = {"Generate": generate, "ListModels": list_models}
    methods |= pooled_methods(service.pooled)
    handler = grpc.method_handlers_generic_handler(SERVICE_NAME, methods)
    server.add_generic_rpc_handlers((handler,))
