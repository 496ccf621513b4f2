"""A prompt whose own tokens are scored: where it goes, and what comes back before the text."""

import asyncio

import pytest
from msgspec import structs

from cluster.errors import InternalError
from cluster.generation import PromptToken
from cluster.sampling import SamplingParams
from protos import generation_pb2, worker_pb2
from router.dispatch.stream import ChoiceTokens, Completed, PromptTokens, RoutedRequest
from tests.router.dispatch_bench import PROMPT, collect, request, router
from tests.router.fake_decode_worker import (
    FakeDecodeWorker,
    ended_frame,
    tokens_frame,
    until,
)
from tests.router.planes import prefill_member


def scored_request() -> RoutedRequest:
    return structs.replace(request(), sampling=SamplingParams(max_tokens=1, prompt_logprobs=1))


def scores(first_index: int, *token_ids: int) -> worker_pb2.WorkerFrame:
    tokens = [generation_pb2.PromptToken(token_id=i, logprob=-1.0, rank=2) for i in token_ids]
    told = worker_pb2.PromptTokens(request_id="r1", first_index=first_index, tokens=tokens)
    return worker_pb2.WorkerFrame(prompts=[told])


async def test_a_scored_prompt_goes_to_a_prefill_worker_and_is_priced_as_if_nothing_were_cached():
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router(worker) as plane:
        await plane.store.join(prefill_member())
        await collect(plane, structs.replace(request("plain"), token_ids=list(range(40))))
        await collect(
            plane, structs.replace(scored_request(), request_id="scored", token_ids=list(range(40)))
        )
        plain, scored = worker.submitted
        assert [len(plain.prefill), len(scored.prefill)] == [1, 1]
        assert scored.sampling.prompt_logprobs == 1
        view = plane.decisions.find("scored").view
        assert [view.decode[0].matched_tokens, view.prefill[0].matched_tokens] == [0, 0]


async def test_what_a_scored_prompt_took_says_nothing_of_others():
    """It goes through its steps by few rows: prices and refusals of others are not made of it."""
    worker = FakeDecodeWorker(answer_at_once=True)
    worker.timing = {"prefill_ms": 5000.0}  # all of the request's time: no more of it is believed
    async with router(worker) as plane:
        key, lines = worker.member().key, plane.estimates.prefill

        async def ask_often(kind: str, sampling: SamplingParams) -> None:
            for turn in range(12):
                length = 100 + 20 * turn
                asked = structs.replace(request(f"{kind}{turn}"), sampling=sampling)
                token_ids = list(range(1000 * turn, 1000 * turn + length))
                await collect(plane, structs.replace(asked, token_ids=token_ids))

        unmeasured = lines.speed_of(key)
        await ask_often("scored", scored_request().sampling)
        assert lines.speed_of(key) == unmeasured
        await ask_often("plain", SamplingParams(max_tokens=1))
        assert lines.speed_of(key) != unmeasured


async def test_scores_of_the_prompt_come_before_its_tokens():
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        asked = asyncio.create_task(collect(plane, scored_request()))
        await until(lambda: worker.submitted)
        worker.send(scores(1, 2, 3))
        worker.send(scores(3, 4))
        worker.send(tokens_frame("r1", 5, last=True))
        worker.send(ended_frame("r1"))
        first, second, tokens, end = await asked
        assert first == PromptTokens(1, [PromptToken(2, -1.0, 2), PromptToken(3, -1.0, 2)])
        assert second == PromptTokens(3, [PromptToken(4, -1.0, 2)])
        assert isinstance(tokens, ChoiceTokens)
        assert isinstance(end, Completed)


async def test_a_worker_that_scores_more_than_the_prompt_ends_the_request():
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        asked = asyncio.create_task(collect(plane, scored_request()))
        await until(lambda: worker.submitted)
        worker.send(scores(1, *range(len(PROMPT))))
        with pytest.raises(InternalError, match="more of the prompt than there is"):
            await asked
