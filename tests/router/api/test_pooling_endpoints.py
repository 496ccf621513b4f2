"""/v1/embeddings, /v1/score and /v1/rerank: shapes, limits, and OpenAI's own client, over a source
that says what prompts become."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest

from cluster.errors import OutOfBlocks, WorkerLost
from cluster.models.pooling import Pooling, PoolingKind
from router.dispatch.stream import RoutedRequest
from router.front.pairs import INSTRUCTION
from router.front.pooled_prompts import MAX_AT_ONCE
from router.front.pooling_checks import MAX_INPUT_TOKENS, MAX_INPUTS
from router.front.text_work import LARGE_BODY_BYTES, Door
from router.text_worker.in_process import InProcessText
from tests.router.front_fakes import (
    CONTEXT_TOKENS,
    MODEL,
    VOCAB_SIZE,
    Front,
    fails,
    hangs,
    pooling_model,
    pools,
    running_front,
    until,
)

EMBEDS = Pooling(kind=PoolingKind.LAST, generates=True, dimensions=())
SCORES = Pooling(kind=PoolingKind.CLASSIFIER)
YES_NO = Pooling(kind=PoolingKind.YES_NO, answer_ids=(1, 2))


def numbers(request: RoutedRequest) -> Sequence[float]:
    """Different of every prompt, and exact in 32 bits."""
    return [len(request.token_ids), request.token_ids[0] / 2, -0.25, 1 / 1024]


def score(request: RoutedRequest) -> Sequence[float]:
    return [len(request.token_ids) / 1024]


@asynccontextmanager
async def front_of(pooling: Pooling | None, script: Any = None, **more: Any):
    model = None if pooling is None else pooling_model(pooling)
    async with running_front(script or pools(numbers), model=model, **more) as front:
        yield front


@pytest.fixture
async def front() -> AsyncIterator[Front]:
    async with front_of(EMBEDS) as running:
        yield running


async def post(front: Front, path: str, body: object) -> httpx.Response:
    async with httpx.AsyncClient(timeout=30) as client:
        return await client.post(f"{front.url}/v1/{path}", json=body)


def client_of(front: Front) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{front.url}/v1", api_key="none", max_retries=0)


@pytest.mark.parametrize("form", ["float", "base64", None])
async def test_openais_client_gets_the_numbers_whatever_their_form(front, form):
    """Without a form it asks for base64 by itself."""
    chosen = {} if form is None else {"encoding_format": form}
    async with client_of(front) as client:
        answer = await client.embeddings.create(model=MODEL, input=["ab", "c"], **chosen)
    expected = [[2, 97 / 2, -0.25, 1 / 1024], [1, 99 / 2, -0.25, 1 / 1024]]
    found = [each.embedding for each in answer.data]
    if form == "base64":
        found = [list(struct.unpack("<4f", base64.b64decode(each))) for each in found]
    assert found == expected
    assert [each.index for each in answer.data] == [0, 1]
    assert (answer.object, answer.model, answer.data[0].object) == ("list", MODEL, "embedding")
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (3, 3)


@pytest.mark.parametrize(
    ("given", "prompts"),
    [
        ("ab", [b"ab"]),
        (["ab", "c"], [b"ab", b"c"]),
        ([1, 2, 3], [bytes([1, 2, 3])]),
        ([[1, 2], [3]], [bytes([1, 2]), bytes([3])]),
    ],
)
async def test_all_four_forms_of_input_are_taken(front, given, prompts):
    answer = await post(front, "embeddings", {"input": given, "user": "u", "model": MODEL})
    assert answer.status_code == 200
    assert [bytes(each.token_ids) for each in front.source.requests] == prompts
    assert all(each.pooling == "last" for each in front.source.requests)
    assert answer.json()["usage"]["prompt_tokens_details"] == {"cached_tokens": len(prompts)}


@pytest.mark.parametrize("ending", [0, LARGE_BODY_BYTES])
async def test_a_body_of_any_size_is_read_alike(front, ending):
    body = httpx.Response(200, json={"input": ["ab"], "dimensions": 3}).content + b" " * ending
    async with httpx.AsyncClient() as client:
        headers = {"content-type": "application/json"}
        answer = await client.post(f"{front.url}/v1/embeddings", content=body, headers=headers)
    assert answer.status_code == 200
    (request,) = front.source.requests
    assert request.pool is not None and request.pool.dimensions == 3


async def test_answers_keep_the_order_of_inputs_and_only_some_run_at_once():
    num_running, most = 0, 0
    are_many = asyncio.Event()

    def script(request: RoutedRequest):
        async def run():
            nonlocal num_running, most
            num_running += 1
            most = max(most, num_running)
            if num_running == MAX_AT_ONCE:
                are_many.set()
            await are_many.wait()
            async for event in pools(numbers)(request):
                yield event
            num_running -= 1

        return run()

    async with front_of(EMBEDS, script) as front:
        inputs = ["x" * (1 + index % 50) for index in range(200)]
        answer = (await post(front, "embeddings", {"input": inputs})).json()
    assert [each["embedding"][0] for each in answer["data"]] == [len(text) for text in inputs]
    assert most == MAX_AT_ONCE


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": ""}, "prompt"),
        ({"input": []}, "input"),
        ({"input": ["a", 1]}, "input"),
        ({"input": [[]]}, "prompt"),
        ({"input": ["a"] * (MAX_INPUTS + 1)}, "input"),
        ({"input": [VOCAB_SIZE]}, "prompt"),
        ({"input": [-1]}, "prompt"),
        ({"input": [1] * (CONTEXT_TOKENS + 1)}, "input"),
        ({"input": "x" * CONTEXT_TOKENS}, "prompt"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": 5}, "dimensions"),
        ({"input": "a", "dimensions": 10**400}, "dimensions"),
        ({"input": "a", "cache_salt": "x" * 300}, "cache_salt"),
        ({"input": "a", "timeout_s": -1}, "timeout_s"),
        ({"input": "a", "model": "other"}, "model"),
        ({"input": "a", "stream": True}, "stream"),
    ],
)
async def test_what_is_wrong_is_named_before_any_work(front, body, param):
    answer = await post(front, "embeddings", body)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"] == param
    assert front.source.requests == []


async def test_more_tokens_than_a_request_may_have_are_refused_before_any_work(front, monkeypatch):
    monkeypatch.setattr("router.front.pooling_checks.MAX_INPUT_TOKENS", 100)
    answer = await post(front, "embeddings", {"input": ["x" * 40] * 3})
    assert answer.status_code == 400 and "120 tokens" in answer.json()["error"]["message"]
    assert front.source.requests == [] and MAX_INPUT_TOKENS > 100


async def test_an_answer_that_would_be_too_large_is_refused_before_any_work():
    wide = pooling_model(EMBEDS, hidden_size=8192)
    async with running_front(pools(numbers), model=wide) as front:
        body = {"input": ["a"] * 1000}
        answer = await post(front, "embeddings", body)
        assert answer.status_code == 400
        assert "base64" in answer.json()["error"]["message"]
        assert front.source.requests == []
        assert (await post(front, "embeddings", body | {"dimensions": 16})).status_code == 200


async def test_dimensions_are_those_that_a_checkpoint_states():
    stated = Pooling(kind=PoolingKind.LAST, dimensions=(2, 3))
    async with front_of(stated) as front:
        assert (await post(front, "embeddings", {"input": "a", "dimensions": 3})).status_code == 200
        answer = await post(front, "embeddings", {"input": "a", "dimensions": 1})
        assert "allowed: 2, 3" in answer.json()["error"]["message"]


async def test_a_model_that_was_not_trained_for_it_is_not_cut():
    async with front_of(Pooling(kind=PoolingKind.MEAN)) as front:
        answer = await post(front, "embeddings", {"input": "a", "dimensions": 2})
        assert answer.status_code == 400
        assert "--matryoshka" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("embeddings", {"input": "a"}),
        ("score", {"text_1": "a", "text_2": "b"}),
        ("rerank", {"query": "a", "documents": ["b"]}),
    ],
)
async def test_a_model_of_text_refuses_by_name(path, body):
    async with front_of(None) as front:
        answer = await post(front, path, body)
        assert answer.status_code == 400
        assert "--pooling" in answer.json()["error"]["message"]
        assert front.source.requests == []


async def test_a_model_that_makes_no_text_refuses_chats_by_name():
    async with front_of(SCORES, pools(score)) as front:
        for path, body in (
            ("completions", {"prompt": "a"}),
            ("chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ):
            answer = await post(front, path, body)
            assert answer.status_code == 400
            assert "/v1/score and /v1/rerank" in answer.json()["error"]["message"]
        answer = await post(front, "embeddings", {"input": "a"})
        assert answer.status_code == 400 and "/v1/score" in answer.json()["error"]["message"]


async def test_the_first_that_fails_ends_the_others():
    def script(request: RoutedRequest):
        is_bad = request.token_ids[0] == ord("b")
        return (fails(OutOfBlocks("no room")) if is_bad else hangs())(request)

    async with front_of(EMBEDS, script) as front:
        answer = await post(front, "embeddings", {"input": ["a", "b", "c"]})
        assert answer.json()["error"]["code"] == "out_of_blocks"
        assert front.source.num_closed == len(front.source.requests)


async def test_a_worker_s_loss_has_its_own_status():
    async with front_of(EMBEDS, fails(WorkerLost("gone"))) as front:
        answer = await post(front, "embeddings", {"input": "a"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "worker_lost")


async def test_a_client_that_leaves_ends_all_of_its_prompts():
    async with front_of(EMBEDS, hangs()) as front:
        task = asyncio.create_task(post(front, "embeddings", {"input": ["a", "b", "c"]}))
        await until(lambda: len(front.source.requests) == 3, "all are under way")
        task.cancel()
        await until(lambda: front.source.num_closed == 3, "all are closed")


async def test_pairs_are_put_together_as_the_tokenizer_does_and_scored_in_order():
    async with front_of(SCORES, pools(score)) as front:
        answer = (await post(front, "score", {"text_1": "q", "text_2": ["ab", "c"]})).json()
        assert [bytes(r.token_ids[:1]) for r in front.source.requests] == [b"q", b"q"]
    assert answer["object"] == "list" and answer["id"].startswith("score-")
    assert [(d["index"], d["object"]) for d in answer["data"]] == [(0, "score"), (1, "score")]
    assert [d["score"] for d in answer["data"]] == [4 / 1024, 3 / 1024]
    assert answer["usage"]["total_tokens"] == 7


async def test_as_many_of_both_are_paired_one_by_one():
    async with front_of(SCORES, pools(score)) as front:
        body = {"text_1": ["q", "rst"], "text_2": ["ab", "c"]}
        answer = (await post(front, "score", body)).json()
    assert [d["score"] for d in answer["data"]] == [4 / 1024, 5 / 1024]


async def test_embeddings_are_compared_by_their_cosine(front):
    body = {"text_1": ["aaa", "b"], "text_2": ["aaa", "cc"]}
    answer = (await post(front, "score", body)).json()
    assert len(front.source.requests) == 4
    scores = [each["score"] for each in answer["data"]]
    assert scores[0] == pytest.approx(1.0) and 0.9 < scores[1] < 0.9999


async def test_documents_are_ranked_the_best_first():
    async with front_of(SCORES, pools(score)) as front:
        body = {"query": "q", "documents": ["a", {"text": "abc"}, "ab"], "top_n": 2}
        answer = (await post(front, "rerank", body)).json()
        assert [each["index"] for each in answer["results"]] == [1, 2]
        assert answer["results"][0]["document"] == {"text": "abc"}
        assert answer["results"][0]["relevance_score"] == 5 / 1024
        bare = (await post(front, "rerank", body | {"return_documents": False})).json()
        assert "document" not in bare["results"][0]


async def test_many_documents_come_back_from_a_large_body():
    async with front_of(SCORES, pools(score)) as front:
        texts = [f"{index:04d}" * 20 for index in range(600)]
        answer = (await post(front, "rerank", {"query": "q", "documents": texts})).json()
    assert [each["document"]["text"] for each in answer["results"]] == texts


async def test_yes_or_no_is_asked_in_the_words_of_qwen3_reranker():
    async with front_of(YES_NO, pools(score)) as front:
        await post(front, "score", {"text_1": "q", "text_2": "d"})
        await post(front, "score", {"text_1": "q", "text_2": "d", "instruction": "Judge."})
        texts = [bytes(r.token_ids).decode() for r in front.source.requests]
    assert f"<Instruct>: {INSTRUCTION}\n<Query>: q\n<Document>: d<|im_end|>\n" in texts[0]
    assert texts[0].startswith("<|im_start|>system\nJudge whether")
    assert texts[0].endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert "<Instruct>: Judge.\n" in texts[1]


async def test_a_small_body_of_which_many_texts_are_made_is_read_elsewhere(monkeypatch):
    read = []
    texts = InProcessText.read

    async def noted(self, door, *rest):
        read.append(door)
        return await texts(self, door, *rest)

    monkeypatch.setattr(InProcessText, "read", noted)
    async with front_of(SCORES, pools(score)) as front:
        body = {"text_1": "q" * 400, "text_2": ["d"] * 100}
        assert (await post(front, "score", body)).status_code == 200
        assert (await post(front, "score", body | {"text_2": ["d"]})).status_code == 200
    assert read == [Door.SCORE]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("score", {"text_1": [], "text_2": "d"}, "text_1"),
        ("score", {"text_1": "q", "text_2": []}, "text_2"),
        ("score", {"text_1": ["a", "b"], "text_2": ["c"] * 3}, "text_1"),
        ("score", {"text_1": "", "text_2": "d"}, "text_1"),
        ("score", {"text_1": "q", "text_2": ""}, "text_2"),
        ("score", {"text_1": "q", "text_2": "d", "instruction": "x"}, "instruction"),
        ("score", {"text_1": "x" * 60_000, "text_2": ["d"] * 60}, "text_2"),
        ("rerank", {"query": "", "documents": ["d"]}, "query"),
        ("rerank", {"query": "q", "documents": ["d", ""]}, "documents"),
        ("rerank", {"query": "x" * 60_000, "documents": ["d"] * 60}, "documents"),
        ("rerank", {"query": "q", "documents": ["d"] * (MAX_INPUTS + 1)}, "documents"),
        ("rerank", {"query": "q", "documents": ["d"], "top_n": -1}, "top_n"),
        ("rerank", {"query": "q", "documents": [{"title": "d"}]}, "documents[0].text"),
    ],
)
async def test_what_is_wrong_with_pairs_is_named(path, body, param):
    async with front_of(SCORES, pools(score)) as front:
        answer = await post(front, path, body)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == param
        assert front.source.requests == []
