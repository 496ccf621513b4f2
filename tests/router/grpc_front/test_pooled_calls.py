"""Embed and Score over gRPC: the same pipeline as HTTP, with its limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from cluster.errors import InvalidRequest, WorkerLost
from cluster.models.pooling import Pooling, PoolingKind
from protos import inference_pb2
from router.dispatch.stream import RoutedRequest
from router.front.pooling_checks import MAX_INPUTS
from router.front.text_work import LARGE_BODY_BYTES
from router.grpc_front.pooled_reading import split_score
from tests.router.front_fakes import MODEL, fails, hangs, pooling_model, pools, until
from tests.router.grpc_front.test_grpc_inference import GrpcFront, running_grpc

EMBEDS = Pooling(kind=PoolingKind.LAST, dimensions=())
SCORES = Pooling(kind=PoolingKind.CLASSIFIER)


def numbers(request: RoutedRequest) -> list[float]:
    return [len(request.token_ids), 0.5]


@asynccontextmanager
async def front_of(pooling: Pooling, script: Any = None) -> AsyncIterator[GrpcFront]:
    model = pooling_model(pooling, hidden_size=2)
    async with running_grpc(script or pools(numbers), model=model) as front:
        yield front


def embed(*texts: str, **fields: Any) -> inference_pb2.EmbedRequest:
    inputs = [inference_pb2.EmbedInput(text=text) for text in texts]
    return inference_pb2.EmbedRequest(inputs=inputs, request_id="mine", **fields)


async def refusal_of(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


async def test_texts_and_ids_become_embeddings_in_their_order() -> None:
    async with front_of(EMBEDS) as front:
        request = embed("abc", "d", model=MODEL, dimensions=1)
        request.inputs.add().tokens.ids.extend([1, 2])
        answer = await front.stub.Embed(request)
        assert [list(each.values) for each in answer.embeddings] == [[3, 0.5], [1, 0.5], [2, 0.5]]
        assert answer.request_id == "mine"
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (6, 0)
        assert all(r.pool is not None and r.pool.dimensions == 1 for r in front.source.requests)


async def test_a_large_message_is_read_elsewhere_and_alike() -> None:
    async with front_of(EMBEDS) as front:
        texts = ["x" * 200] * (LARGE_BODY_BYTES // 200 + 1)
        answer = await front.stub.Embed(embed(*texts))
        assert [each.values[0] for each in answer.embeddings] == [200] * len(texts)


async def test_pairs_are_scored() -> None:
    async with front_of(SCORES) as front:
        request = inference_pb2.ScoreRequest(queries=["q"], documents=["ab", "c"])
        answer = await front.stub.Score(request)
        assert list(answer.scores) == [4, 3]
        assert answer.usage.prompt_tokens == 7


async def test_embeddings_are_compared() -> None:
    async with front_of(EMBEDS) as front:
        request = inference_pb2.ScoreRequest(queries=["ab", "c"], documents=["ab", "c"])
        answer = await front.stub.Score(request)
        assert list(answer.scores) == pytest.approx([1, 1])


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (embed(), "0 inputs"),
        (embed(*["a"] * (MAX_INPUTS + 1)), f"allowed: 1 to {MAX_INPUTS}"),
        (embed("a", dimensions=3), "allowed: 1 to 2"),
        (embed("a", model="other"), "does not exist"),
        (embed("a", cache_salt="x" * 300), "cache_salt"),
        (embed("x" * 600), "shorten"),
        (inference_pb2.EmbedRequest(inputs=[inference_pb2.EmbedInput()]), "set text or tokens"),
    ],
)
async def test_what_is_wrong_is_named_before_any_work(
    request_: inference_pb2.EmbedRequest, words: str
) -> None:
    async with front_of(EMBEDS) as front:
        code, told = await refusal_of(front.stub.Embed(request_))
        assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
        assert words in told
        assert front.source.requests == []


def test_what_is_wrong_with_pairs_names_the_field_of_the_message() -> None:
    model = pooling_model(SCORES, hidden_size=2)
    wrong = {"queries": (["a", "b"], ["c"] * 3), "documents": (["a"], [])}
    for param, (queries, documents) in wrong.items():
        raw = inference_pb2.ScoreRequest(queries=queries, documents=documents).SerializeToString()
        with pytest.raises(InvalidRequest) as refused:
            split_score(model, raw)
        assert refused.value.param == param


async def test_bytes_that_are_no_message_are_refused() -> None:
    async with front_of(EMBEDS) as front:
        call = front.channel.unary_unary("/splitserve.v1.Inference/Embed")
        code, told = await refusal_of(call(b"\xff\xff"))
        assert (code, told) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "the message is no EmbedRequest",
        )


async def test_a_worker_s_loss_is_told() -> None:
    async with front_of(EMBEDS, fails(WorkerLost("gone"))) as front:
        code, _ = await refusal_of(front.stub.Embed(embed("a")))
        assert code is grpc.StatusCode.UNAVAILABLE


async def test_a_caller_that_leaves_ends_all_of_its_prompts() -> None:
    async with front_of(EMBEDS, hangs()) as front:
        call = front.stub.Embed(embed("a", "b"))
        task = asyncio.ensure_future(call)
        await until(lambda: len(front.source.requests) == 2, "both are under way")
        task.cancel()
        await until(lambda: front.source.num_closed == 2, "both are closed")
