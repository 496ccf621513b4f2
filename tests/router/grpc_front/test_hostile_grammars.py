"""Hostile grammars at the gRPC door: each is refused, and no stream beside them stands still."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import grpc
import pytest

from cluster.models.cache.store import ModelStore
from protos import inference_pb2
from router.front.model_loading import load_text_side
from tests.core_speed import slowness
from tests.router.front_fakes import small_limits, until
from tests.router.grammar.hostile import LARK, SCHEMAS
from tests.router.grammar.test_hostile_at_the_door import (
    CONTEXT_TOKENS,
    LIMIT_S,
    NAME,
    TURN_S,
    talks,
)
from tests.router.grpc_front.test_grpc_inference import GrpcFront, running_grpc, text_request
from tests.router.loop_turns import measured_turns
from tests.router.text_worker.text_bench import workers_of

_OF_SCHEMAS = ("1,200 refs", "allOf of 23 patterns", "5,000 optional properties", "800 deep")
_OF_LARK = ("a chain of 3,000 rules", "26 terms at once", "3,000 brackets")


def asked() -> dict[str, dict[str, Any]]:
    """By name: one of each field that has a grammar, and those that crash or hang the library."""
    tag = {"triggers": [f"<{i}" for i in range(1000)], "structures": []}
    return {
        **{name: {"json": json.dumps(SCHEMAS[name])} for name in _OF_SCHEMAS},
        **{name: {"grammar": LARK[name]} for name in _OF_LARK},
        "40,000 letters": {"regex": "ab" * 20_000},
        "10,000 choices": {"choice": inference_pb2.Choices(texts=map(str, range(10_000)))},
        "1,000 triggers": {"structural_tag": json.dumps(tag)},
    }


async def refusal(front: GrpcFront, constraint: dict[str, Any]) -> grpc.StatusCode:
    """Asked again where nobody knows, as the machine gave a trial no time."""
    while True:
        request = text_request(max_tokens=5)
        request.structured_outputs.CopyFrom(inference_pb2.StructuredOutputs(**constraint))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in front.stub.Generate(request, timeout=LIMIT_S):
                pass
        if caught.value.code() is not grpc.StatusCode.UNAVAILABLE:
            return caught.value.code()


async def stream(front: GrpcFront, told: list[int]) -> None:
    """Counts what comes, until it is cancelled."""
    async for _ in front.stub.Generate(text_request(max_tokens=1_000_000)):
        told[0] += 1


def _has_more(told: list[int], than: int) -> bool:
    return told[0] > than


@pytest.mark.timeout(300)
async def test_each_is_refused_over_grpc_while_a_stream_goes_on(
    monkeypatch: pytest.MonkeyPatch, no_collector: None
) -> None:
    card = ModelStore().resolve(NAME)
    model, told = load_text_side(card, NAME, lambda: CONTEXT_TOKENS), [0]
    patient = small_limits(reader_timeout_s=LIMIT_S, request_timeout_s=LIMIT_S)
    async with (
        workers_of(card) as texts,
        running_grpc(talks, patient, model=model, texts=texts) as front,
    ):
        telling = asyncio.create_task(stream(front, told))
        await until(partial(_has_more, told, 0), "the stream has begun")
        with measured_turns(monkeypatch) as turns:
            for name, constraint in asked().items():
                before = told[0]
                assert await refusal(front, constraint) is grpc.StatusCode.INVALID_ARGUMENT, name
                await until(partial(_has_more, told, before), f"the stream goes on after {name}")
        assert not telling.done()
        telling.cancel()
        await asyncio.wait([telling])
        assert len(front.source.requests) == 1, "no worker has seen any of them"
    assert turns.longest_s < TURN_S * slowness()
