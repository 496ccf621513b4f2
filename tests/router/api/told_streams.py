"""Streams over HTTP whose connections break, and a model that goes on wherever an answer is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx

from cluster.generation import FinishReason
from router.dispatch.first_part import FirstPart
from router.dispatch.stream import ChoiceTokens, RoutedRequest, StreamEvent
from tests.router.front_fakes import Front, Script, completed, tokens_of

TEXT = "né 😀 STOP it"
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "n": 2, "stop": ["STOP"], "seed": 3}
COMPLETION = {"prompt": "Hi", "n": 2, "max_tokens": 30}
USAGE = {"stream_options": {"include_usage": True}, "max_tokens": 30}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "a chat": ("/v1/chat/completions", CHAT | USAGE),
    "a chat with logprobs": ("/v1/chat/completions", CHAT | {"logprobs": True, "top_logprobs": 2}),
    "a completion": ("/v1/completions", COMPLETION | {"temperature": 0}),
    "a completion with logprobs": ("/v1/completions", COMPLETION | USAGE | {"logprobs": 1}),
}


def says_on(text: str) -> Script:
    """As a model: from wherever an answer is, a byte at a time of each choice."""

    async def run(request: RoutedRequest) -> AsyncIterator[StreamEvent]:
        if request.keeper is not None and request.first_part is None:
            request.keeper.begun(FirstPart("pairing", 3), request.sampling.max_tokens)
        data = tokens_of(request, text.encode())
        begun = {each.choice: len(each.token_ids) for each in request.resume}
        places = begun or {choice: 0 for choice in range(request.sampling.n)}
        for at in range(len(data)):
            reason = FinishReason.LENGTH if at == len(data) - 1 else None
            for choice in places:
                if at >= places[choice]:
                    yield ChoiceTokens(choice, [data[at]], reason)
        yield completed(request, len(data))

    return run  # type: ignore[return-value]


class Told:
    """What a client has got of a stream, over all of its connections."""

    def __init__(self) -> None:
        self.texts = ["", ""]
        self.logprobs: list[list[Any]] = [[], []]
        self.reasons: list[str | None] = [None, None]
        self.roles: list[str] = []
        self.usage: Any = None
        self.ids: list[str] = []
        self.envelopes: set[tuple[str, int, str]] = set()

    def take(self, event_id: str, body: dict[str, Any]) -> None:
        self.ids.append(event_id)
        self.envelopes.add((body["id"], body["created"], body["object"]))
        self.usage = body.get("usage") or self.usage
        for choice in body["choices"]:
            index, delta = choice["index"], choice.get("delta", {})
            self.texts[index] += choice.get("text") or delta.get("content") or ""
            self.reasons[index] = choice["finish_reason"] or self.reasons[index]
            self.roles += [delta["role"]] if "role" in delta else []
            told = choice["logprobs"] or {}
            self.logprobs[index] += told.get("content") or list(
                zip(told.get("tokens", []), told.get("text_offset", []), strict=True)
            )

    def everything(self) -> tuple[Any, ...]:
        return self.texts, self.logprobs, self.reasons, self.roles, self.usage


async def events_of(answer: httpx.Response) -> AsyncIterator[tuple[str, str]]:
    """Id and data."""
    event_id = data = ""
    async for line in answer.aiter_lines():
        name, _, value = line.partition(": ")
        if name == "id":
            event_id = value
        elif name == "data":
            data = value
        elif not line and data:
            yield event_id, data
            event_id = data = ""


async def read(
    front: Front, told: Told, path: str, body: dict[str, Any], up_to: int | None = None
) -> bool:
    """True when the stream has ended; else the connection was broken after so many events."""
    headers = {"Last-Event-ID": told.ids[-1]} if told.ids else {}
    async with (
        httpx.AsyncClient(base_url=front.url) as client,
        client.stream("POST", path, json=body, headers=headers) as answer,
        aclosing(events_of(answer)) as events,
    ):
        assert answer.status_code == 200
        async for event_id, data in events:
            if data == "[DONE]":
                return True
            told.take(event_id, json.loads(data))
            if len(told.ids) == up_to:
                return False
    raise AssertionError("the stream has no end")
