"""POST /tokenize and /detokenize: texts and ids, without a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from router.api.generation_endpoint import HttpContext
from router.api.http.asgi import Receive, Scope, Send
from router.api.http.exchange import Exchange
from router.api.reading.asked_model import model_in
from router.api.reading.nesting import refusing_depth
from router.api.request_timeout import TIMEOUT_HEADER, asked_timeout_s
from router.front.body_account import HeldBody
from router.front.generation_request import TokenPrompt
from router.front.text_work import (
    LARGE_BODY_BYTES,
    Door,
    ReadBody,
    SplitBody,
    has_many_ids,
)


class TextReader(Protocol):
    """One endpoint's way from a body to an answer. Raises InvalidRequest and its kin."""

    door: Door

    def split(self, body: bytes) -> SplitBody:
        """Every check, and the prompt taken out; the rest has the `model`
        that is asked for, not checked. Of a large body this is a text worker's work."""
        ...

    async def answer(self, rest: bytes, prompts: Sequence[TokenPrompt]) -> bytes:
        """JSON, from what is left of the body and the prompt as ids."""
        ...


class TextEndpoint:
    """An ASGI application for one path."""

    def __init__(self, context: HttpContext, reader: TextReader) -> None:
        self._context = context
        self._door = context.door
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._context.serve(scope, receive, send, self._run)

    async def _run(self, exchange: Exchange, body: bytes, held: HeldBody) -> None:
        asked_s = asked_timeout_s(exchange.header(TIMEOUT_HEADER), None)
        limits = self._door.times.limits(exchange.arrived_s, asked_s)
        caller = exchange.caller()
        pipeline, reader = self._door.pipeline, self._reader
        until = limits.to_first_token
        split = await self._split_here(body)
        if split is None:
            done = await pipeline.read_large(reader.door, body, until, caller)
            self._check_model(exchange, done.rest)
        else:
            self._check_model(exchange, split.rest)
            ids = [await pipeline.encode(each, until, caller) for each in split.prompts]
            done = ReadBody(split.rest, tuple(map(TokenPrompt, ids)), split.ignored)
        held.close()
        exchange.headers += self._context.ignored.tell(done.ignored)
        await exchange.reply(await reader.answer(done.rest, done.prompts))

    def _check_model(self, exchange: Exchange, rest: bytes) -> None:
        """Texts are the same with every adapter, whatever it makes of them. Raises UnknownModel,
        AdapterUnread and NotAllowed."""
        model = self._door.model
        name = model.adapter_name_in(model_in(rest))
        model.check_key(exchange.tenant, name)
        if name:
            model.listed_adapter(name)

    async def _split_here(self, body: bytes) -> SplitBody | None:
        """None where that, or what follows, is a text worker's work."""
        if len(body) > LARGE_BODY_BYTES:
            return None
        await self._door.share.breathe()
        with refusing_depth():
            split = self._reader.split(body)
        return None if split.is_echoed and has_many_ids(split.prompts) else split
