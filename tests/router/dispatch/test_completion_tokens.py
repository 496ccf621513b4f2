"""Completion tokens are counted once: client, metrics, decision and log say the same."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from structlog.testing import capture_logs

from cluster.generation import Usage
from cluster.sampling import SamplingParams
from router.control.plane import FleetPlane
from router.dispatch.running_choices import RunningChoices
from router.dispatch.stream import ChoiceTokens, Completed
from router.front.generation_request import GenerationRequest, TokenPrompt, Wishes
from router.text.choice_count import new_counts
from tests.router.dispatch_bench import PROMPT, router, time_limits
from tests.router.fake_decode_worker import (
    FakeDecodeWorker,
    ended_frame,
    tokens_frame,
    until,
)
from tests.router.front_fakes import pipeline_over


def asked_for(wishes: Wishes) -> GenerationRequest:
    return GenerationRequest(
        request_id="r1", prompt=TokenPrompt(PROMPT), wishes=wishes, limits=time_limits(30.0)
    )


@asynccontextmanager
async def told(wishes: Wishes, *frames: object) -> AsyncIterator[tuple[FleetPlane, Usage]]:
    """What a client is told at the end of a request to whose worker these frames belong."""
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        pipeline = pipeline_over(plane.source)
        prepared = await pipeline.prepare(asked_for(wishes))

        async def last() -> object:
            return [event async for event in pipeline.stream(prepared)][-1]

        task = asyncio.create_task(last())
        await until(lambda: bool(worker.submitted))
        for frame in frames:
            worker.send(frame)
        end = await task
        assert isinstance(end, Completed)
        yield plane, end.usage


def counted(plane: FleetPlane) -> tuple[float | None, int]:
    decision = plane.decisions.find("r1")
    assert decision is not None and decision.usage is not None
    metric = plane.registry.get_sample_value("splitserve_completion_tokens_total")
    return metric, decision.usage.completion_tokens


async def test_a_token_that_nobody_asked_for_is_counted_nowhere() -> None:
    wishes = Wishes(sampling=SamplingParams(max_tokens=1), max_tokens=0, is_echoed=True)
    frames = [tokens_frame("r1", 5, last=True), ended_frame("r1", made=1)]
    with capture_logs() as lines:
        async with told(wishes, *frames) as (plane, usage):
            assert usage.completion_tokens == 0
            assert counted(plane) == (0.0, 0)
    assert lines[-1]["completion_tokens"] == 0


async def test_tokens_behind_a_stop_string_are_counted_nowhere() -> None:
    wishes = Wishes(sampling=SamplingParams(max_tokens=1), max_tokens=20, stop=(".",))
    frames = [tokens_frame("r1", *b"ab"), tokens_frame("r1", *b"c.de"), ended_frame("r1", made=6)]
    async with told(wishes, *frames) as (plane, usage):
        assert usage.completion_tokens == 4
        assert counted(plane) == (4.0, 4)


def test_what_comes_for_a_choice_that_is_over_does_not_count() -> None:
    counts = new_counts(2)
    choices = RunningChoices(counts)
    given = ChoiceTokens(0, [])
    counts[0].gave(3)
    heard: list[tuple[int, bool]] = []

    class Runner:
        def finish(self, choice: int, *, is_last: bool) -> None:
            heard.append((choice, is_last))

    choices.run_by(Runner())
    counts[0].take_back(1)
    counts[0].stop()
    counts[0].stop()
    assert not choices.take(given)
    assert (heard, choices.num_tokens, choices.longest_tokens) == ([(0, False)], 2, 2)
