"""Whoever is refused for the line's sake is refused before anything is read or tokenized for it."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from cluster.errors import QueueFull
from protos import inference_pb2
from router.front.text_work import LARGE_BODY_BYTES
from router.text_worker.desk import TextDesk
from tests.router.api.told_streams import ASKED, TEXT, Told, read, says_on
from tests.router.front_fakes import MODEL, Front, running_front, says, until
from tests.router.grpc_front.test_grpc_inference import failure_of, running_grpc, text_request
from tests.router.grpc_front.test_pooled_calls import EMBEDS, embed, front_of, refusal_of

LONG = "a long talk " * (100_000 // 12)
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses")
FULL = QueueFull("7 requests wait, which is the limit", retry_after_s=4.0)


@pytest.fixture
def text_work(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What text work was asked for, by name."""
    asked: list[str] = []
    for name in ("encode", "read"):
        real = getattr(TextDesk, name)

        def noted(desk: TextDesk, *args: object, name: str = name, real: object = real) -> object:
            asked.append(name)
            return real(desk, *args)  # type: ignore[operator]

        monkeypatch.setattr(TextDesk, name, noted)
    return asked


def _chat(content: str) -> dict[str, object]:
    return {"model": MODEL, "messages": [{"role": "user", "content": content}]}


async def _answer_to_a_head(front: Front, path: str) -> bytes:
    """To the head of a request whose body never comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    head = [f"POST {path} HTTP/1.1", "Host: r", "Content-Type: application/json"]
    writer.write("\r\n".join([*head, "Content-Length: 100000", "", ""]).encode())
    async with asyncio.timeout(10):
        answer = await reader.readuntil(b"\r\n\r\n")
        answer += await reader.readuntil(b"is the limit")
    writer.close()
    return answer


@pytest.mark.parametrize("path", PATHS)
async def test_over_http_the_head_is_enough(path: str) -> None:
    async with running_front() as front:
        front.source.full = FULL
        answer = await _answer_to_a_head(front, path)
        assert b" 429 " in answer.split(b"\r\n")[0]
        assert b"retry-after" in answer.lower() and b"which is the limit" in answer
        (newcomer,) = front.source.newcomers
        assert newcomer.tenant.name == "" and newcomer.request_id
        assert front.in_flight.num_admitted == 0


async def test_no_text_worker_is_asked_for_one_that_is_refused(
    text_work: list[str],
) -> None:
    async with (
        running_front() as front,
        httpx.AsyncClient(base_url=front.url, timeout=30) as client,
    ):
        front.source.full = FULL
        assert (await client.post(PATHS[0], json=_chat(LONG))).status_code == 429
        assert (text_work, front.source.requests) == ([], [])
        front.source.full = None
        too_long = await client.post(PATHS[0], json=_chat(LONG))
        assert (too_long.status_code, text_work) == (400, ["read"]), too_long.text


async def test_questions_that_need_no_worker_are_answered_all_the_same() -> None:
    async with (
        running_front() as front,
        httpx.AsyncClient(base_url=front.url, timeout=30) as client,
    ):
        front.source.full = FULL
        told = await client.post("/tokenize", json={"model": MODEL, "prompt": "Hi"})
        assert told.status_code == 200 and front.source.newcomers == []
        assert (await client.get("/v1/models")).status_code == 200


async def test_the_rest_of_a_whole_answer_is_had_while_the_line_is_full() -> None:
    path, asked = ASKED["a chat"]
    body = asked | {"stream": True, "resumable": True}
    async with running_front(says_on(TEXT), keeps_streams=True) as front:
        whole, told = Told(), Told()
        assert await read(front, whole, path, body)
        told.ids = whole.ids[:1]
        front.source.full = FULL
        assert await read(front, told, path, {})
        assert told.ids == whole.ids
        async with httpx.AsyncClient(base_url=front.url, timeout=30) as client:
            of_others = {"Last-Event-ID": "another-server-s"}
            refused = await client.post(path, json=body, headers=of_others)
        assert refused.status_code == 429


@pytest.mark.parametrize("text", ["Hi", LONG])
async def test_over_grpc_it_is_refused_before_its_prompt_is_work(
    text: str, text_work: list[str]
) -> None:
    assert len(LONG) > LARGE_BODY_BYTES
    async with running_grpc(says("ok")) as front:
        front.source.full = FULL
        _, code, message = await failure_of(front.stub.Generate(text_request(text)))
        assert (code, message) == ("queue_full", FULL.message)
        assert (text_work, front.source.requests, len(front.source.newcomers)) == ([], [], 1)
        await until(lambda: front.in_flight.num_admitted == 0, "it is over")


@pytest.mark.parametrize("text", ["Hi", LONG])
async def test_over_grpc_prompts_that_are_pooled_are_refused_so_as_well(
    text: str, text_work: list[str]
) -> None:
    async with front_of(EMBEDS) as front:
        front.source.full = FULL
        _, told = await refusal_of(front.stub.Embed(embed(text)))
        score = inference_pb2.ScoreRequest(queries=[text], documents=["d"])
        _, told_of_scores = await refusal_of(front.stub.Score(score))
        assert told == told_of_scores == FULL.message
        assert [each.is_pooled for each in front.source.newcomers] == [True, True]
        assert (text_work, front.source.requests) == ([], [])


async def test_over_grpc_the_rest_of_a_whole_answer_is_had_while_the_line_is_full() -> None:
    async with running_grpc(says_on(TEXT), keeps_streams=True) as front:
        asked = inference_pb2.GenerateRequest(text="Hi", resumable=True)
        first, *others = [each.event_id async for each in front.stub.Generate(asked)]
        (newcomer,) = front.source.newcomers
        front.source.full = FULL
        again = inference_pb2.GenerateRequest(last_event_id=first)
        rest = [each.event_id async for each in front.stub.Generate(again)]
        assert rest == others and front.source.newcomers == [newcomer]
