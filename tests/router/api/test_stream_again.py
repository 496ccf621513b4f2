"""Streams over HTTP whose connection breaks: another request gets the rest, word for word."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx
import pytest

from cluster.generation import FinishReason
from cluster.process.background import cancel
from examples import resuming_client
from router.dispatch.stream import ChoiceTokens, FirstPart, RoutedRequest, StreamEvent
from tests.router.front_fakes import Front, Script, completed, running_front, tokens_of

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


@pytest.mark.parametrize("kind", ASKED)
async def test_the_rest_comes_as_if_nothing_had_been(kind: str) -> None:
    path, asked = ASKED[kind]
    body = asked | {"stream": True, "resumable": True}
    async with running_front(says_on(TEXT), keeps_streams=True) as front:
        whole = Told()
        assert await read(front, whole, path, body)
        assert all(whole.ids) and whole.reasons == ["stop" if "stop" in asked else "length"] * 2
        for up_to in range(1, len(whole.ids) + 1):
            told = Told()
            assert not await read(front, told, path, body, up_to)
            assert await read(front, told, path, {})
            assert told.everything() == whole.everything()
            assert len(told.envelopes) == 1


async def test_a_stream_that_nobody_asked_to_resume_has_no_ids(front: Front) -> None:
    told = Told()
    assert await read(front, told, *ASKED["a chat"][:1], ASKED["a chat"][1] | {"stream": True})
    assert not any(told.ids)


@pytest.mark.parametrize(
    "changes",
    [{"stream": False}, {"prompt": ["a", "b"]}, {"echo": True}],
    ids=["no stream", "two prompts", "echo"],
)
async def test_what_nobody_could_have_the_rest_of_is_refused(changes: dict[str, Any]) -> None:
    body = COMPLETION | {"stream": True, "resumable": True} | changes
    async with running_front(keeps_streams=True) as front, httpx.AsyncClient() as client:
        answer = await client.post(f"{front.url}/v1/completions", json=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "resumable"


async def test_what_is_not_kept_or_begun_elsewhere_is_an_error_of_its_own() -> None:
    path, asked = ASKED["a chat"]
    unknown = {"Last-Event-ID": f"{'0' * 32}:-"}
    async with running_front(says_on(TEXT), keeps_streams=True) as front:
        told = Told()
        await read(front, told, path, asked | {"stream": True, "resumable": True}, 1)
        async with httpx.AsyncClient(base_url=front.url) as client:
            answer = await client.post(path, json={}, headers=unknown)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_resumable")
            headers = {"Last-Event-ID": told.ids[-1]}
            answer = await client.post("/v1/completions", json={}, headers=headers)
            assert answer.status_code == 400


async def test_a_router_that_keeps_nothing_says_so(front: Front) -> None:
    async with httpx.AsyncClient(base_url=front.url) as client:
        headers = {"Last-Event-ID": f"{'0' * 32}:-"}
        answer = await client.post("/v1/completions", json={}, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_resumable")


async def cutting_proxy(port: int, after_bytes: int) -> asyncio.Server:
    """Breaks every connection when it has passed on so many bytes of its answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
        asking = asyncio.create_task(pass_on(reader, up_writer, None))
        await pass_on(up_reader, writer, after_bytes)
        await cancel([asking])
        up_writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


async def pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, up_to: int | None
) -> None:
    passed = 0
    while (data := await reader.read(100)) and (up_to is None or passed < up_to):
        writer.write(data)
        passed += len(data)
    writer.close()


async def test_the_example_reads_a_stream_over_as_many_connections_as_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resuming_client, "PAUSE_S", 0.0)
    async with running_front(says_on(TEXT), keeps_streams=True) as front:
        whole, told = Told(), Told()
        path, asked = ASKED["a chat"]
        await read(front, whole, path, asked | {"stream": True, "resumable": True})
        proxy = await cutting_proxy(front.port, 1500)
        urls = [f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"]
        chunks = await asyncio.to_thread(lambda: [*resuming_client.events(urls, path, asked)])
        for chunk in chunks:
            told.take("", chunk)
        assert told.everything() == whole.everything()
        assert len(front.source.requests) >= 2
        proxy.close()
