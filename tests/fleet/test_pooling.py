"""Embeddings of real fleets: equal to transformers', by the openai package, whatever dies."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal

import grpc
import httpx
import openai
import pytest
import torch

from protos import inference_pb2, inference_pb2_grpc
from tests.fleet.support import Fleet, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
TEXTS = [
    "The river ran past an old stone mill.",
    "Ships",
    "farmers brought their grain after the harvest " * 40,
    "farmers brought their grain after the harvest " * 40 + "and told stories",
]
CLOSE = {"rtol": 1e-3, "atol": 2e-5}
"""float32 sums in another order, over 30 layers, of values that are at most 1."""


def client_of(fleet: Fleet) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{fleet.url}/v1", api_key="none", max_retries=0, timeout=120)


def expected(reference, text: str, kind: str, dimensions: int | None = None) -> torch.Tensor:
    hidden = reference.hidden(reference.tokenizer(text)["input_ids"])
    pooled = hidden[-1] if kind == "last" else hidden.mean(dim=0)
    return torch.nn.functional.normalize(pooled[:dimensions], dim=0)


def assert_equal(found, reference, kind: str, dimensions: int | None = None) -> None:
    for each, text in zip(found, TEXTS, strict=True):
        wanted = expected(reference, text, kind, dimensions)
        torch.testing.assert_close(torch.tensor(each.embedding), wanted, **CLOSE)


@pytest.mark.parametrize("form", ["float", None])
def test_a_fleet_of_prefill_workers_alone_makes_transformers_embeddings(
    embedding_fleet, reference, form
):
    """The package asks for base64 where no form is chosen."""
    chosen = {} if form is None else {"encoding_format": form}
    with client_of(embedding_fleet) as client:
        for _ in range(2):  # the second time from the cache
            answer = client.embeddings.create(model="smollm2", input=TEXTS, **chosen)
            assert_equal(answer.data, reference, "last")
        cached = answer.usage.model_dump()["prompt_tokens_details"]["cached_tokens"]
        assert cached > 200  # of the two long ones one may be asked of another worker
        cut = client.embeddings.create(model="smollm2", input=TEXTS, dimensions=64, **chosen)
        assert_equal(cut.data, reference, "last", 64)


def test_nobody_there_makes_text(embedding_fleet):
    answer = httpx.post(f"{embedding_fleet.url}/v1/completions", json={"prompt": "a"}, timeout=30)
    assert answer.status_code == 503
    assert "no decode worker has joined" in answer.json()["error"]["message"]


async def test_embeddings_come_over_grpc_too(embedding_fleet, reference):
    request = inference_pb2.EmbedRequest(inputs=[inference_pb2.EmbedInput(text=TEXTS[0])])
    async with grpc.aio.insecure_channel(embedding_fleet.grpc_address) as channel:
        answer = await inference_pb2_grpc.InferenceStub(channel).Embed(request, timeout=60)
    wanted = expected(reference, TEXTS[0], "last")
    torch.testing.assert_close(torch.tensor(list(answer.embeddings[0].values)), wanted, **CLOSE)


@pytest.mark.parametrize("which", ["engine_pid", "pid"])
async def test_who_dies_under_load_costs_no_answer(embedding_fleet, which):
    """Its prompts are computed by the other one; the fleet starts it again."""
    wait_for(lambda: ready_workers(embedding_fleet) == 2, timeout_s=120, what="both are ready")
    restarts = total_restarts(embedding_fleet)
    victim = embedding_fleet.status(check=False)["members"][0]
    async with httpx.AsyncClient(base_url=embedding_fleet.url, timeout=120) as client:
        is_killed, numbers, answers = asyncio.Event(), itertools.count(), list[httpx.Response]()

        async def keep_asking() -> None:
            """Once more after the kill at least."""
            is_last = False
            while not is_last:
                is_last = is_killed.is_set()
                text = f"{next(numbers)} " + "words that nobody has cached " * 60
                body = {"input": [text, text[:200]]}
                answers.append(await client.post("/v1/embeddings", json=body))

        tasks = [asyncio.create_task(keep_asking()) for _ in range(12)]
        await asyncio.to_thread(
            wait_for,
            lambda: embedding_fleet.status(check=False)["num_in_flight"] > 2,
            timeout_s=30,
            what="prompts are under way",
        )
        os.kill(victim[which], signal.SIGKILL)
        is_killed.set()
        await asyncio.gather(*tasks)
    assert {answer.status_code for answer in answers} == {200}, answers[-1].text[:500]
    assert all(len(answer.json()["data"]) == 2 for answer in answers)
    wait_for(
        lambda: total_restarts(embedding_fleet) > restarts, timeout_s=60, what="it is restarted"
    )
    wait_for(lambda: ready_workers(embedding_fleet) == 2, timeout_s=120, what="both are ready")
    members = embedding_fleet.status()["members"]
    assert [member["violations"] for member in members] == [[], []]


def test_embeddings_of_two_ranks_and_chats_come_from_one_fleet(fleet_of_both, reference):
    with client_of(fleet_of_both) as client:
        answer = client.embeddings.create(model="smollm2", input=TEXTS)
        assert_equal(answer.data, reference, "mean")
        question = [{"role": "user", "content": "What is the capital of France?"}]
        chat = client.chat.completions.create(
            model="smollm2", messages=question, temperature=0, max_tokens=20
        )
        assert "Paris" in (chat.choices[0].message.content or "")
        again = client.embeddings.create(model="smollm2", input=TEXTS)
        assert_equal(again.data, reference, "mean")
        with pytest.raises(openai.BadRequestError, match="--matryoshka"):
            client.embeddings.create(model="smollm2", input="a", dimensions=8)
    assert all(not m["violations"] for m in fleet_of_both.status()["members"])


def test_documents_are_ranked_by_their_embeddings(fleet_of_both):
    body = {
        "query": "Where do ships go?",
        "documents": ["bread and butter", "Where do ships go?", "The harbour is full of ships."],
    }
    answer = httpx.post(f"{fleet_of_both.url}/v1/rerank", json=body, timeout=60).json()
    results = answer["results"]
    assert results[0]["index"] == 1 and results[0]["relevance_score"] == pytest.approx(1, abs=1e-4)
    scores = [each["relevance_score"] for each in results]
    assert scores == sorted(scores, reverse=True)


def ready_workers(fleet: Fleet) -> int:
    return sum(m["state"] == "ready" for m in fleet.status(check=False)["members"])


def total_restarts(fleet: Fleet) -> int:
    return sum(fleet.status(check=False)["restarts"].values())
