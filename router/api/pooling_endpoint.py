"""POST /v1/embeddings, /v1/score and /v1/rerank, from bytes to answer."""

from __future__ import annotations

from collections.abc import Sequence

from router.api.answers import pooled_bodies as bodies
from router.api.generation_endpoint import HttpContext
from router.api.http.asgi import Receive, Scope, Send
from router.api.http.exchange import Exchange
from router.api.request_timeout import TIMEOUT_HEADER, asked_timeout_s
from router.dispatch.stream import Newcomer
from router.dispatch.time_limits import TimeLimits
from router.front.body_account import HeldBody
from router.front.pairs import num_chars_of_all
from router.front.pooled_prompts import PooledPrompts, PooledRequest, PooledValues
from router.front.pooled_rest import PooledReader, PooledRest, rest_of
from router.front.text_work import LARGE_BODY_BYTES, Door, ReadBody, SplitBody
from router.telemetry.request_trace import RequestTrace

_ID_PREFIXES = {Door.EMBEDDINGS: "embd", Door.SCORE: "score", Door.RERANK: "rerank"}


class PoolingEndpoint:
    """An ASGI application for one path."""

    def __init__(self, context: HttpContext, reader: PooledReader) -> None:
        self._context = context
        self._door = context.door
        self._reader = reader
        self._prompts = PooledPrompts(context.door.model, context.door.pipeline)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._context.serve(scope, receive, send, self._run, self._check_room)

    def _check_room(self, exchange: Exchange) -> None:
        limits = self._limits(exchange, None)
        newcomer = Newcomer(exchange.request_id, exchange.tenant, limits, is_pooled=True)
        self._door.pipeline.check_room(newcomer)

    async def _run(self, exchange: Exchange, body: bytes, held: HeldBody) -> None:
        read = await self._read(exchange, body)
        held.close()
        exchange.headers += self._context.ignored.tell(read.ignored)
        rest = rest_of(read.rest)
        request = PooledRequest(
            request_id=exchange.request_id,
            prompts=read.prompts,
            param=self._reader.door.inputs,
            limits=self._limits(exchange, rest.timeout_s),
            tenant=exchange.tenant,
            caller=exchange.caller(),
            dimensions=rest.dimensions,
            cache_salt=rest.cache_salt,
            adapter=rest.adapter,
            traces=self._traces(exchange, len(read.prompts)),
        )
        prepared = await self._prompts.prepare(request)
        pooled = await self._prompts.pooled(prepared)
        await exchange.reply(await self._answer(exchange, rest, pooled))

    async def _read(self, exchange: Exchange, body: bytes) -> SplitBody | ReadBody:
        """A large body by a text worker, and a small one of which many texts are made."""
        door, reader = self._door, self._reader
        if len(body) <= LARGE_BODY_BYTES:
            await door.share.breathe()
            split = reader.split(body)
            if num_chars_of_all(split.prompts) <= LARGE_BODY_BYTES:
                return split
        until = self._limits(exchange, None).to_first_token
        return await door.pipeline.read_large(reader.door, body, until, exchange.caller())

    def _limits(self, exchange: Exchange, timeout_s: float | None) -> TimeLimits:
        asked_s = asked_timeout_s(exchange.header(TIMEOUT_HEADER), timeout_s)
        return self._door.times.limits(exchange.arrived_s, asked_s)

    def _traces(self, exchange: Exchange, num_prompts: int) -> list[RequestTrace | None]:
        if self._door.tracing is None:
            return []
        parents, states = map(exchange.headers_named, (b"traceparent", b"tracestate"))
        operation = self._reader.door.operation
        return self._door.tracing.begin_each(num_prompts, parents, states, operation)

    async def _answer(
        self, exchange: Exchange, rest: PooledRest, pooled: Sequence[PooledValues]
    ) -> bytes:
        door = self._reader.door
        named = bodies.Named(
            f"{_ID_PREFIXES[door]}-{exchange.request_id}", rest.name_of(self._door.model)
        )
        if door is Door.EMBEDDINGS:
            return await bodies.embeddings(named, rest, pooled, self._door.share)
        tell = bodies.scores if door is Door.SCORE else bodies.ranked
        return await tell(named, rest, pooled, self._door.share)
