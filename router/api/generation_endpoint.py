"""POST /v1/chat/completions and POST /v1/completions, from bytes to answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from cluster.errors import InvalidRequest
from router.api.answers.shape import AnswerShape, Envelope
from router.api.answers.tally import Tally
from router.api.generation import Generation
from router.api.http.asgi import Receive, Scope, Send
from router.api.http.exchange import Exchange
from router.api.ignored_fields import IgnoredFields
from router.api.plan_reading import plan_of
from router.api.reading.answer_size import fitting
from router.api.reading.plan import AnswerOptions, BodyReader, Plan
from router.api.request_timeout import TIMEOUT_HEADER, asked_timeout_s
from router.api.stream_again import EVENT_HEADER, ToldStream, check_resumable, rest_asked_for
from router.dispatch.stream import Newcomer
from router.dispatch.time_limits import TimeLimits
from router.front.answer_bounds import check_scored
from router.front.body_account import HeldBody
from router.front.doors import DoorContext
from router.front.events import DeltaTaker
from router.front.fan_out import IndexedEvent, merge
from router.front.generation_request import GenerationRequest
from router.front.prepared_generation import PreparedGeneration
from router.front.resumption import Resumable
from router.resume.place import is_of_ours
from router.telemetry.request_trace import RequestTrace
from router.tenants.tenant import Tenant

TIMINGS_HEADER = b"x-splitserve-timings"
Answering = Callable[[Exchange, bytes, HeldBody], Coroutine[Any, Any, None]]
"""Answers one body. It lets `HeldBody` go once what it has read takes the place of the body."""


@dataclass(frozen=True, slots=True)
class HttpContext:
    """What the endpoints have in common."""

    door: DoorContext
    ignored: IgnoredFields = field(default_factory=IgnoredFields)

    async def serve(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        answer: Answering,
        check: Callable[[Exchange], None] = lambda exchange: None,
    ) -> None:
        """Lets a request in, within what the door admits and holds, reads its body and has it
        answered for as long as the client is there. `check` raises what its head is enough for."""
        exchange = Exchange(scope, receive, send, self.door.door_limits)
        with self.door.in_flight.admit(), self.door.bodies.open(exchange.caller) as held:
            check(exchange)
            body = await exchange.read_json_body(held, self.door.share)
            await exchange.until_disconnect(answer(exchange, body, held))


class GenerationEndpoint:
    """An ASGI application for one path."""

    def __init__(self, context: HttpContext, reader: BodyReader) -> None:
        self._context = context
        self._door = context.door
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._context.serve(scope, receive, send, self._run, self._check_room)

    def _check_room(self, exchange: Exchange) -> None:
        """Not of who wants the rest of a stream: that may be there without anybody's work."""
        if (event_id := exchange.header(EVENT_HEADER)) and is_of_ours(event_id):
            return
        limits = self._time_limits(exchange, None)
        newcomer = Newcomer(exchange.request_id, exchange.tenant, limits)
        self._door.pipeline.check_room(newcomer)

    async def _run(self, exchange: Exchange, body: bytes, held: HeldBody) -> None:
        if event_id := rest_asked_for(exchange.header(EVENT_HEADER), body):
            held.close()
            generation = await self._resume(exchange, event_id)
            await generation.answer(exchange)
            return
        plan = fitting(_with_headers(await self._read(exchange, body), exchange))
        held.close()
        exchange.headers += self._context.ignored.tell(plan.ignored)
        limits = self._time_limits(exchange, plan.timeout_s)
        generation = await self._begin(plan, exchange, limits)
        await generation.answer(exchange)

    async def _read(self, exchange: Exchange, body: bytes) -> Plan:
        return await plan_of(
            body,
            self._reader,
            self._door,
            lambda: self._time_limits(exchange, None).to_first_token,
            exchange.caller(),
        )

    def _time_limits(self, exchange: Exchange, timeout_s: float | None) -> TimeLimits:
        asked_s = asked_timeout_s(exchange.header(TIMEOUT_HEADER), timeout_s)
        return self._door.times.limits(exchange.arrived_s, asked_s)

    async def _resume(self, exchange: Exchange, event_id: str) -> Generation:
        """The rest of a stream; what its first request said counts, and no body that comes with
        this one. Raises NotResumable."""
        limits = self._time_limits(exchange, None)
        resumable = await self._door.resuming().resume(
            event_id, exchange.tenant, exchange.request_id, limits, door=self._reader.door.value
        )
        model, told = self._door.model, msgspec.msgpack.decode(resumable.told_as, type=ToldStream)
        name = resumable.prepared.model_name(model.name)
        envelope = told.envelope(name, model.fingerprint)
        shape = self._reader.shape_again(resumable.prepared.routed.sampling)
        return self._generation([resumable.prepared], shape, envelope, told.options, resumable)

    def _resumable(
        self, prepared: PreparedGeneration, plan: Plan, envelope: Envelope, tenant: Tenant
    ) -> Resumable | None:
        """None: nobody asked for it, or this router keeps nothing."""
        if not plan.options.resumable or self._door.resumption is None:
            return None
        told_as = msgspec.msgpack.encode(ToldStream.of(envelope, plan.options))
        door = self._reader.door.value
        return self._door.resumption.begin(prepared, tenant, door=door, told_as=told_as)

    async def _begin(self, plan: Plan, exchange: Exchange, limits: TimeLimits) -> Generation:
        """Every prompt is checked before the first is dispatched."""
        prepared = await self._prepare(plan, exchange, limits)
        plan.shape.starts_after(prepared[0].routed.token_ids)
        model = self._door.model
        envelope = Envelope(
            id=f"{plan.id_prefix}-{exchange.request_id}",
            model=prepared[0].model_name(model.name),
            fingerprint=model.fingerprint,
        )
        resumable = self._resumable(prepared[0], plan, envelope, exchange.tenant)
        if resumable is not None:
            prepared = [resumable.prepared]
        return self._generation(prepared, plan.shape, envelope, plan.options, resumable)

    def _generation(
        self,
        prepared: list[PreparedGeneration],
        shape: AnswerShape,
        envelope: Envelope,
        options: AnswerOptions,
        resumable: Resumable | None,
    ) -> Generation:
        return Generation(
            begin=partial(self._events, prepared),
            shape=shape,
            envelope=envelope,
            tally=Tally(
                [len(each.routed.token_ids) for each in prepared],
                shape.thought_tokens,
                is_predicted=any(each.routed.prediction for each in prepared),
            ),
            num_choices=prepared[0].num_best or prepared[0].routed.sampling.n,
            num_prompts=len(prepared),
            options=options,
            share=self._door.share,
            resumable=resumable,
            ping_interval_s=self._door.door_limits.ping_interval_s,
        )

    def _events(
        self, prepared: list[PreparedGeneration], taker: DeltaTaker
    ) -> AsyncGenerator[IndexedEvent, None]:
        """Only of one prompt are deltas the taker's."""
        pipeline, only = self._door.pipeline, taker if len(prepared) == 1 else None
        return merge([pipeline.stream(each, only) for each in prepared], self._door.share)

    async def _prepare(
        self, plan: Plan, exchange: Exchange, limits: TimeLimits
    ) -> list[PreparedGeneration]:
        """The encoder lets the loop go between them."""
        prepared: list[PreparedGeneration] = []
        num_tokens = 0
        for each in self._requests(plan, exchange, limits):
            prepared.append(await self._door.pipeline.prepare(each))
            num_tokens += len(prepared[-1].routed.token_ids)
            check_scored(plan.wishes.sampling, num_tokens)
        return prepared

    def _requests(
        self, plan: Plan, exchange: Exchange, limits: TimeLimits
    ) -> list[GenerationRequest]:
        request_id, several = exchange.request_id, len(plan.prompts) > 1
        caller, traces = exchange.caller(), self._traces(exchange, len(plan.prompts))
        return [
            GenerationRequest(
                request_id=f"{request_id}-{index}" if several else request_id,
                tenant=exchange.tenant,
                caller=caller,
                prompt=prompt,
                wishes=plan.wishes,
                limits=limits,
                trace=trace,
            )
            for index, (prompt, trace) in enumerate(zip(plan.prompts, traces, strict=True))
        ]

    def _traces(self, exchange: Exchange, num_prompts: int) -> list[RequestTrace | None]:
        """Of each of a body's prompts."""
        if self._door.tracing is None:
            return [None] * num_prompts
        parents, states = map(exchange.headers_named, (b"traceparent", b"tracestate"))
        operation = self._reader.door.operation
        return self._door.tracing.begin_each(num_prompts, parents, states, operation)


def _with_headers(plan: Plan, exchange: Exchange) -> Plan:
    """The timings of several prompts have no common record."""
    asked = (exchange.header(TIMINGS_HEADER) or "").lower() in ("1", "true")
    if asked:
        options = msgspec.structs.replace(plan.options, timings=True)
        plan = msgspec.structs.replace(plan, options=options)
    if plan.options.timings and len(plan.prompts) > 1:
        raise InvalidRequest("timings are for one prompt only; send one prompt", param="timings")
    check_resumable(plan)
    return plan
