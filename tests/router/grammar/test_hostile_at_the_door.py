"""Hostile grammars at the HTTP door: each is refused, and no stream beside them stands still."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest

from cluster.models.cache.store import ModelStore
from router.dispatch.stream import ChoiceTokens, RoutedRequest, StreamEvent
from router.front.model_loading import load_text_side
from router.front.text_work import LARGE_BODY_BYTES
from tests.core_speed import slowness
from tests.router.front_fakes import Front, running_front, tokens_of, tool_model, until
from tests.router.grammar.hostile import LARK, PARAMETERS, SCHEMAS, patterns
from tests.router.loop_turns import measured_turns
from tests.router.text_worker.text_bench import workers_of

TURN_S = 0.15
"""That one turn of the event loop takes of a core of the usual speed, at most. Reading a schema
takes 10 ms of it."""
COME_AGAIN = 503
"""The machine gave a trial no time."""
NAME = "smollm2"
LIMIT_S = 280.0
CONTEXT_TOKENS = 1 << 21
TOO_MANY = 1 << 22
"""Tokens: a body that asks for them is refused once it was read, at the latest."""
PACE_S = 0.002
"""Of the stream: one that never waits would leave the loop no time."""


def wishes_of() -> dict[str, dict[str, Any]]:
    """By name, as parts of a body: in every field that has a grammar."""
    asked: dict[str, dict[str, Any]] = {}
    for index, (name, schema) in enumerate(SCHEMAS.items()):
        named = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        ways: tuple[dict[str, Any], ...] = (
            {"response_format": named},
            {"structured_outputs": {"json": schema}},
        )
        asked[name] = ways[index % 2]
    for name, text in LARK.items():
        asked[name] = {"structured_outputs": {"grammar": text}}
    asked["40,000 letters"] = {"structured_outputs": {"regex": "ab" * 20_000}}
    asked["10,000 choices"] = {"structured_outputs": {"choice": list(map(str, range(10_000)))}}
    tag = {"triggers": [f"<{i}" for i in range(1000)], "structures": []}
    asked["1,000 triggers"] = {"structured_outputs": {"structural_tag": tag}}
    for name, schema in (("patterns", {"allOf": patterns(30)}), ("60", SCHEMAS["60 deep"])):
        inner = {"type": "object", "properties": {"x": schema}}
        tool = {"type": "function", "function": {"name": "f", "parameters": inner}}
        asked[f"a tool: {name}"] = {"tools": [tool], "tool_choice": "required"}
    return asked


async def refusal(client: httpx.AsyncClient, wishes: dict[str, Any]) -> httpx.Response:
    """Asked again where nobody knows."""
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, **wishes}
    body["timeout_s"] = LIMIT_S
    while True:
        reply = await client.post("/v1/chat/completions", json=body)
        if reply.status_code != COME_AGAIN:
            return reply


async def talks(request: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
    """A Script that never ends."""
    while True:
        await asyncio.sleep(PACE_S)
        yield ChoiceTokens(0, tokens_of(request, b"x"))


async def stream(front: Front, told: list[int]) -> None:
    """Counts what comes, until it is cancelled."""
    body = {"prompt": "x", "stream": True, "max_tokens": 1_000_000}
    async with (
        httpx.AsyncClient(base_url=front.url, timeout=None) as client,
        client.stream("POST", "/v1/completions", json=body) as reply,
    ):
        async for _line in reply.aiter_lines():
            told[0] += 1


def _has_more(told: list[int], than: int) -> bool:
    return told[0] > than


@pytest.mark.timeout(300)
async def test_each_of_thirty_is_refused_while_a_stream_goes_on(
    monkeypatch: pytest.MonkeyPatch, no_collector: None
) -> None:
    card = ModelStore().resolve(NAME)
    model = load_text_side(card, NAME, lambda: CONTEXT_TOKENS)
    asked, told = wishes_of(), [0]
    async with (
        workers_of(card) as texts,
        running_front(talks, model=model, texts=texts) as front,
        httpx.AsyncClient(base_url=front.url, timeout=LIMIT_S) as client,
    ):
        telling = asyncio.create_task(stream(front, told))
        with measured_turns(monkeypatch) as turns:
            for name, wishes in asked.items():
                before = told[0]
                reply = await refusal(client, wishes)
                assert reply.status_code in (400, 413), (name, reply.text[:300])
                await until(partial(_has_more, told, before), f"the stream goes on after {name}")
        assert not telling.done()
        telling.cancel()
        await asyncio.wait([telling])
    assert len(asked) >= 30 and turns.longest_s < TURN_S * slowness()


def tool_bodies(parameters: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By path: one tool with these, which asks for no grammar."""
    described = {"name": "f", "parameters": parameters}
    said = [{"role": "user", "content": "Hi"}]
    return {
        "/v1/chat/completions": {
            "messages": said,
            "max_tokens": TOO_MANY,
            "tools": [{"type": "function", "function": described}],
        },
        "/v1/messages": {
            "messages": said,
            "max_tokens": TOO_MANY,
            "tools": [{"name": "f", "input_schema": parameters}],
        },
        "/v1/responses": {
            "input": "Hi",
            "max_output_tokens": TOO_MANY,
            "tools": [{"type": "function", **described}],
        },
    }


@pytest.mark.timeout(300)
@pytest.mark.parametrize("family", ["qwen3_coder", "hermes", "pythonic"])
async def test_types_of_parameters_hold_no_stream_at_any_door_that_takes_tools(
    family: str, monkeypatch: pytest.MonkeyPatch, no_collector: None
) -> None:
    told, model = [0], replace(tool_model(family), context_limit=lambda: CONTEXT_TOKENS)
    async with (
        running_front(talks, model=model) as front,
        httpx.AsyncClient(base_url=front.url, timeout=LIMIT_S) as client,
    ):
        telling = asyncio.create_task(stream(front, told))
        with measured_turns(monkeypatch) as turns:
            for name, parameters in PARAMETERS.items():
                for path, body in tool_bodies(parameters).items():
                    before = told[0]
                    reply = await client.post(path, json=body)
                    assert len(reply.request.content) <= LARGE_BODY_BYTES, name
                    assert reply.status_code == 400, (name, reply.text[:300])
                    await until(
                        partial(_has_more, told, before), f"the stream goes on after {name}"
                    )
        assert not telling.done()
        telling.cancel()
        await asyncio.wait([telling])
    assert turns.longest_s < TURN_S * slowness()
