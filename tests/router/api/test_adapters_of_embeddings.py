"""Embeddings and scores by adapters over both doors: asked for by name, and never the base's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import grpc
import httpx
import msgspec
import pytest

from cluster.adapter import Adapter
from cluster.errors import NotAllowed, UnknownModel
from cluster.models.pooling import Pooling, PoolingKind
from protos import inference_pb2
from router.dispatch.stream import RoutedRequest
from router.front.generation_request import TextPrompt
from router.front.pipeline import CompletionPipeline
from router.front.pooled_prompts import PooledPrompts, PooledRequest
from router.front.served_model import ServedModel, unknown_model
from router.front.text_work import LARGE_BODY_BYTES
from router.tenants.tenant import Tenant
from router.text_worker.in_process import InProcessText
from tests.router.dispatch_bench import time_limits
from tests.router.front_fakes import MODEL, FakeSource, pooling_model, pools, running_front
from tests.router.grpc_front.test_grpc_inference import running_grpc

ONE, OF_TEXT = Adapter("one", "a" * 32), Adapter("text-only", "b" * 32)
EMBEDS = Pooling(kind=PoolingKind.LAST, dimensions=())


def numbers(request: RoutedRequest) -> list[float]:
    return [len(request.token_ids), 0.5, 0.25, 1.0]


def adapted_model() -> ServedModel:
    """Whose workers that pool have one adapter, and those that make text another."""
    return replace(
        pooling_model(EMBEDS),
        find_adapter={"text-only": OF_TEXT}.get,
        find_pooling_adapter={"one": ONE}.get,
        all_adapters=lambda: [ONE, OF_TEXT],
    )


def bodies(model: str) -> dict[str, dict[str, Any]]:
    return {
        "embeddings": {"model": model, "input": ["ab", "c"]},
        "score": {"model": model, "text_1": "a", "text_2": "b"},
        "rerank": {"model": model, "query": "a", "documents": ["b", "c"]},
    }


@pytest.mark.parametrize("path", bodies(""))
async def test_prompts_of_a_request_by_an_adapter_are_all_computed_by_it(path: str) -> None:
    async with running_front(pools(numbers), model=adapted_model()) as front:
        async with httpx.AsyncClient() as http:
            answer = await http.post(f"{front.url}/v1/{path}", json=bodies("one")[path])
            plain = await http.post(f"{front.url}/v1/{path}", json=bodies(MODEL)[path])
        assert (answer.status_code, answer.json()["model"]) == (200, "one")
        assert (plain.status_code, plain.json()["model"]) == (200, MODEL)
        adapters = [each.adapter for each in front.source.requests]
        half = len(adapters) // 2
        assert adapters == [ONE] * half + [None] * half
        assert front.source.requests[0].root_at("pair") != front.source.requests[-1].root_at("pair")


@pytest.mark.parametrize("padding", [0, LARGE_BODY_BYTES], ids=["small", "large"])
@pytest.mark.parametrize("name", ["two", "text-only"])
async def test_a_name_that_no_worker_that_pools_has_is_404_and_nothing_is_computed(
    name: str, padding: int
) -> None:
    async with running_front(pools(numbers), model=adapted_model()) as front:
        content = msgspec.json.encode({"model": name, "input": "ab"}) + b" " * padding
        async with httpx.AsyncClient() as http:
            headers = {"content-type": "application/json"}
            url = f"{front.url}/v1/embeddings"
            answer = await http.post(url, content=content, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
        assert front.source.requests == []


async def test_an_adapter_s_page_is_there_whatever_it_is_asked_for() -> None:
    model = adapted_model()
    async with running_front(pools(numbers), model=model) as front, httpx.AsyncClient() as http:
        for name in ("one", "text-only"):
            found = await http.get(f"{front.url}/v1/models/{name}")
            assert (found.status_code, found.json()["parent"]) == (200, MODEL)
        assert (await http.get(f"{front.url}/v1/models/two")).status_code == 404


@pytest.mark.parametrize("path", ["tokenize", "detokenize"])
async def test_texts_are_the_same_for_every_name_that_is_listed(path: str) -> None:
    async with (
        running_front(pools(numbers), model=adapted_model()) as front,
        httpx.AsyncClient() as http,
    ):
        body = {"tokenize": {"prompt": "a"}, "detokenize": {"tokens": [65]}}[path]
        for name, status in (("one", 200), ("text-only", 200), ("two", 404)):
            found = await http.post(f"{front.url}/{path}", json={"model": name, **body})
            assert found.status_code == status, name


async def test_over_grpc_an_adapter_is_asked_for_alike() -> None:
    async with running_grpc(pools(numbers), model=adapted_model()) as front:
        inputs = [inference_pb2.EmbedInput(text="abc")]
        await front.stub.Embed(inference_pb2.EmbedRequest(model="one", inputs=inputs))
        [asked] = front.source.requests
        assert asked.adapter == ONE
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await front.stub.Embed(inference_pb2.EmbedRequest(model="two", inputs=inputs))
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert len(front.source.requests) == 1


@pytest.mark.parametrize(
    ("models", "asked", "is_let_in"),
    [
        ((), "one", True),
        (("one",), "one", True),
        (("one",), "", False),
        ((MODEL,), "", True),
        ((MODEL,), "one", False),
    ],
)
async def test_a_key_is_for_the_names_that_it_has(
    models: tuple[str, ...], asked: str, is_let_in: bool
) -> None:
    model = adapted_model()
    pipeline = CompletionPipeline(model, FakeSource(pools(numbers)), InProcessText(model))
    wanted = PooledRequest(
        request_id="r",
        tenant=Tenant(models=models),
        prompts=[TextPrompt("Hi")],
        adapter=asked,
        limits=time_limits(30.0),
    )
    prompts = PooledPrompts(model, pipeline)
    if is_let_in:
        [prepared] = await prompts.prepare(wanted)
        assert prepared.routed.adapter == (ONE if asked else None)
    else:
        hidden = UnknownModel if asked else NotAllowed  # as one that is not there
        with pytest.raises(hidden) as refused:
            await prompts.prepare(wanted)
        if asked:
            absent, there = unknown_model(model, "two"), refused.value.message.replace("one", "two")
            assert (there, refused.value.param) == (absent.message, absent.param)
