"""A limit comes before the work it limits, and is the same over HTTP and gRPC."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import grpc
import httpx
import pytest

from cluster.process.loop_share import LoopShare
from protos import generation_pb2, inference_pb2
from router.api.reading import unsupported
from router.front.chat_rules import MAX_MESSAGES
from router.front.generation_request import MAX_LOGIT_BIAS, MAX_STOP_STRINGS
from router.front.text_work import LARGE_BODY_BYTES
from router.grpc_front import request_reading
from tests.router.front_fakes import (
    CONTEXT_TOKENS,
    ByteTokenizer,
    hangs,
    running_front,
    says,
    small_limits,
    until,
)
from tests.router.grpc_front.test_grpc_inference import failure_of, running_grpc, text_request

Request = inference_pb2.GenerateRequest


def many_messages(count: int) -> Request:
    message = inference_pb2.ChatMessage(role="user")
    return Request(chat=inference_pb2.Chat(messages=[message] * count))


def many_ids(count: int) -> Request:
    return Request(tokens=inference_pb2.TokenIds(ids=[72] * count))


def biased(count: int) -> Request:
    bias = {token_id: 1.0 for token_id in range(count)}
    return Request(text="Hi", sampling=generation_pb2.SamplingParams(logit_bias=bias))


@pytest.mark.parametrize(
    ("request_", "body", "code"),
    [
        (
            many_messages(MAX_MESSAGES + 1),
            {"messages": [{"role": "user", "content": ""}] * (MAX_MESSAGES + 1)},
            "invalid_request",
        ),
        (many_ids(CONTEXT_TOKENS), {"prompt": [72] * CONTEXT_TOKENS}, "context_length_exceeded"),
        (many_ids(40_000), {"prompt": [72] * 40_000}, "context_length_exceeded"),
        (
            Request(text="x" * 8 * CONTEXT_TOKENS + "x"),
            {"prompt": "x" * 8 * CONTEXT_TOKENS + "x"},
            "context_length_exceeded",
        ),
        (
            biased(MAX_LOGIT_BIAS + 1),
            {"prompt": "Hi", "logit_bias": {str(i): 1 for i in range(MAX_LOGIT_BIAS + 1)}},
            "invalid_request",
        ),
        (
            text_request(stop=["s"] * (MAX_STOP_STRINGS + 1)),
            {"prompt": "Hi", "stop": ["s"] * (MAX_STOP_STRINGS + 1)},
            "invalid_request",
        ),
        (
            text_request(stop=["s" * 205] * 5),
            {"prompt": "Hi", "stop": ["s" * 205] * 5},
            "invalid_request",
        ),
    ],
    ids=[
        "messages",
        "ids",
        "ids in a large body",
        "characters",
        "biases",
        "stop strings",
        "stop strings together",
    ],
)
async def test_both_doors_refuse_the_same_in_the_same_words(
    request_: Request, body: dict[str, Any], code: str
) -> None:
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    async with running_grpc(says("ok")) as front:
        _, grpc_code, grpc_words = await failure_of(front.stub.Generate(request_))
    limits = small_limits(max_body_bytes=1_000_000)
    async with running_front(says("ok"), limits) as front, httpx.AsyncClient() as http:
        answer = (await http.post(front.url + path, json=body)).json()["error"]
    assert (grpc_code, grpc_words) == (answer["code"], answer["message"])
    assert grpc_code == code


async def test_a_message_over_the_body_limit_is_too_large_like_a_body() -> None:
    async with running_grpc(says("ok")) as front:
        status, code, words = await failure_of(front.stub.Generate(text_request("x" * 300_000)))
    assert (status, code) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "request_too_large")
    assert "200000" in words


async def test_what_is_no_message_is_an_invalid_request() -> None:
    async with running_grpc(says("ok")) as front:
        call = front.channel.unary_stream("/splitserve.v1.Inference/Generate")
        assert (await failure_of(call(b"\xff\xff\xff")))[1] == "invalid_request"


async def test_calls_over_the_limit_are_told_to_come_again() -> None:
    async with running_grpc(hangs(), small_limits(max_connections=1)) as front:
        first = front.stub.Generate(text_request())
        await until(lambda: front.in_flight.num_admitted == 1, "the first call is in")
        status, code, _ = await failure_of(front.stub.Generate(text_request()))
        assert (status, code) == (grpc.StatusCode.UNAVAILABLE, "not_ready")
        first.cancel()


async def test_too_many_messages_are_counted_and_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[str] = []
    refuse, role = unsupported._Unsupported.refuse, request_reading.checked_role
    monkeypatch.setattr(
        unsupported._OF_MESSAGES.__class__,
        "refuse",
        lambda *args, **kw: (looks.append("http"), refuse(*args, **kw)),
    )
    monkeypatch.setattr(
        request_reading, "checked_role", lambda *args: (looks.append("grpc"), role(*args))[1]
    )
    body = {"messages": [{"role": "user", "content": ""}] * (MAX_MESSAGES + 1)}
    async with running_grpc(says("ok")) as front:
        await failure_of(front.stub.Generate(many_messages(MAX_MESSAGES + 1)))
    limits = small_limits(max_body_bytes=1_000_000)
    async with running_front(says("ok"), limits) as front, httpx.AsyncClient() as http:
        await http.post(f"{front.url}/v1/chat/completions", json=body)
    assert looks == []


async def test_ids_that_do_not_exist_are_never_made_into_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[int] = []

    def decode(self: ByteTokenizer, token_ids: Sequence[int]) -> str:
        decoded.extend(token_ids)
        return ""

    monkeypatch.setattr(ByteTokenizer, "decode", decode)
    async with running_front(says("ok")) as front, httpx.AsyncClient() as http:
        wrong = {"prompt": [5, 99_999], "echo": True}
        answer = await http.post(f"{front.url}/v1/completions", json=wrong)
        assert answer.json()["error"]["code"] == "invalid_request" and decoded == []
        right = {"prompt": [5, 6], "echo": True}
        assert (await http.post(f"{front.url}/v1/completions", json=right)).status_code == 200
    assert decoded == [5, 6]


@pytest.mark.parametrize("padding", [0, LARGE_BODY_BYTES])
async def test_a_large_body_gives_the_same_answer_as_a_small_one(padding: int) -> None:
    """The prompt and every other field arrive, whoever has read them."""
    fields = {"prompt": [72, 105], "echo": True, "max_tokens": 2, "seed": 3, "stop": ["zz"]}
    body = json.dumps(fields) + " " * padding
    async with running_front(says("Hello")) as front, httpx.AsyncClient() as http:
        answer = await http.post(
            f"{front.url}/v1/completions",
            content=body,
            headers={"content-type": "application/json"},
        )
        (seen,) = front.source.requests
    assert answer.json()["choices"][0]["text"] == "HiHe"
    assert (seen.token_ids, seen.sampling.seed) == ([72, 105], 3)
    assert seen.sampling.max_tokens == 2


BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/tokenize", {"prompt": "Hi"}),
    ("/detokenize", {"tokens": [72]}),
    ("/v1/completions", {"prompt": "Hi"}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
]


async def test_whatever_is_read_or_encoded_on_the_loop_takes_its_turn_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once before a body is read, and again before its prompt is encoded."""
    shares: list[LoopShare] = []

    async def note(share: LoopShare) -> None:
        shares.append(share)

    monkeypatch.setattr(LoopShare, "breathe", note)
    async with running_front() as front, httpx.AsyncClient(base_url=front.url) as client:
        for path, body in BODIES:
            shares.clear()
            assert (await client.post(path, json=body)).status_code == 200, path
            assert len(shares) >= 2 and len(set(map(id, shares))) == 1, path
    async with running_grpc(says("ok")) as other:
        shares.clear()
        async for _ in other.stub.Generate(Request(text="Hi")):
            pass
        _, *door = shares  # messages come in one by one before
        assert len(door) >= 2 and len(set(map(id, door))) == 1
