"""Signs of life in a stream: after a silence, never inside an event, and not before they must."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import httpx
import openai
import pytest

from cluster.errors import Cancelled, WorkerLost
from router.api.http.asgi import AsgiMessage
from router.api.http.event_stream import EventStream
from router.api.http.exchange import Exchange
from router.dispatch.stream import ChoiceTokens, RoutedRequest, StreamEvent
from tests.router.front_fakes import (
    MODEL,
    Front,
    Script,
    fails,
    hangs,
    running_front,
    says,
    small_limits,
    tokens_of,
    until,
)

OFTEN = small_limits(ping_interval_s=0.02)
BODY = {"prompt": "x", "stream": True, "max_tokens": 20}


def says_after(gate: asyncio.Event, then: Script, first: str = "") -> Script:
    """Maybe a word, silence until the gate opens, then the other script."""

    async def run(request: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        if first:
            yield ChoiceTokens(0, tokens_of(request, first.encode()))
        await gate.wait()
        async for event in then(request):
            yield event

    return run


@asynccontextmanager
async def streamed(front: Front) -> AsyncIterator[httpx.Response]:
    url = f"{front.url}/v1/completions"
    async with httpx.AsyncClient() as client, client.stream("POST", url, json=BODY) as answer:
        yield answer


async def lines_until(front: Front, gate: asyncio.Event, num_pings: int) -> list[str]:
    """All lines of a stream; the gate opens at the `num_pings`-th ping."""
    lines: list[str] = []
    async with streamed(front) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            lines.append(line)
            if lines.count(": ping") >= num_pings:
                gate.set()
    return [line for line in lines if line]


@pytest.mark.parametrize("first", ["", "He"])
async def test_a_silent_stream_is_kept_open_by_comments(first):
    gate = asyncio.Event()
    async with running_front(says_after(gate, says("llo"), first), OFTEN) as front:
        lines = await lines_until(front, gate, 3)
    text = "".join(
        json.loads(line[6:])["choices"][0]["text"] for line in lines if line.startswith("data: {")
    )
    assert text == first + "llo"
    assert lines[-1] == "data: [DONE]"
    assert set(lines) - {": ping"} == {line for line in lines if line.startswith("data: ")}


async def test_an_error_after_a_ping_is_an_event_since_200_was_said():
    gate = asyncio.Event()
    async with running_front(says_after(gate, fails(WorkerLost("it died"))), OFTEN) as front:
        lines = await lines_until(front, gate, 1)
    assert json.loads(lines[-2][6:])["error"]["code"] == "worker_lost"
    assert lines[-1] == "data: [DONE]"


async def test_an_error_before_the_first_ping_keeps_its_own_status():
    async with running_front(fails(WorkerLost("it died"))) as front, httpx.AsyncClient() as client:
        answer = await client.post(f"{front.url}/v1/completions", json=BODY)
    assert (answer.status_code, answer.headers["content-type"]) == (502, "application/json")


async def test_a_client_that_leaves_a_silent_stream_is_noticed():
    async with running_front(hangs(), OFTEN) as front:
        async with streamed(front) as answer:
            await anext(answer.aiter_lines())
        await until(lambda: front.source.num_closed == 1, "the request is cancelled")


async def test_openais_client_does_not_see_pings():
    gate = asyncio.Event()
    async with running_front(says_after(gate, says("Hello"), "Oh "), OFTEN) as front:
        client = openai.AsyncOpenAI(base_url=f"{front.url}/v1", api_key="none", max_retries=0)
        stream = await client.completions.create(model=MODEL, prompt="x", stream=True)
        asyncio.get_running_loop().call_later(0.2, gate.set)
        text = "".join([chunk.choices[0].text async for chunk in stream if chunk.choices])
        await client.close()
    assert text == "Oh Hello"


class GoneClient(Exchange):
    """Takes the beginning of a stream, and no ping."""

    def __init__(self) -> None:
        scope = {"state": {"is_backed_up": lambda: False}, "headers": []}
        super().__init__(scope, nothing_comes, taken, small_limits())
        self.num_pings = 0

    async def send_comment(self, text: bytes) -> None:
        self.num_pings += 1
        raise Cancelled("the client did not read")


async def nothing_comes() -> AsgiMessage:
    return await asyncio.get_running_loop().create_future()


async def taken(message: AsgiMessage) -> None:
    """The headers."""


async def test_a_ping_that_failed_is_the_last_and_is_told_to_who_sends_next():
    client = GoneClient()
    async with EventStream(client, 0.0) as stream:
        for _ in range(20):  # an interval is over each time
            stream._look()
            await asyncio.sleep(0)
        assert client.num_pings == 1
        with pytest.raises(Cancelled):
            await stream.send(b"token")
