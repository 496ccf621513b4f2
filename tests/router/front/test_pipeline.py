"""The pipeline behind both fronts: encoding, drain, merging, endings and log lines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from cluster.errors import (
    Draining,
    InternalError,
    WorkerLost,
)
from cluster.generation import FinishReason, GeneratedToken, Timing, Usage
from cluster.process.background import CancelledByOthers
from cluster.process.lifespan import Lifespan, ProcessState
from cluster.process.loop_share import LoopShare
from cluster.sampling import SamplingParams
from router.dispatch.running_choices import RunningChoices
from router.dispatch.stream import ChoiceTokens, Completed, RoutedRequest, StreamEvent
from router.dispatch.time_limits import TimeLimits
from router.fleet.token_taker import TokenTaker
from router.front.caller import NOBODY, Caller
from router.front.events import TextEvent
from router.front.fan_out import MAX_BUFFERED_EVENTS, merge
from router.front.generation_request import (
    ChatPrompt,
    GenerationRequest,
    TextPrompt,
    Wishes,
    checked_seed,
)
from router.front.pipeline import CompletionPipeline
from router.tenants.tenant import combined_salt
from router.text.choice import TextDelta
from router.text.choice_count import ChoiceCount, new_counts
from router.text.stop_strings import StopAutomaton
from router.text_worker.in_process import InProcessText
from tests.router.front_fakes import (
    FakeSource,
    Script,
    byte_model,
    fails,
    pipeline_over,
    says,
    talks_forever,
)


def request(text: str = "Hi", **changes: Any) -> GenerationRequest:
    given: dict[str, Any] = {
        "request_id": "r1",
        "prompt": TextPrompt(text),
        "limits": TimeLimits(arrived_s=time.monotonic(), first_token_s=5.0, between_tokens_s=5.0),
    }
    asked: dict[str, Any] = {"sampling": SamplingParams(max_tokens=1), "max_tokens": None}
    of_all = {name: value for name, value in changes.items() if name in given}
    of_text = {name: value for name, value in changes.items() if name not in given}
    return GenerationRequest(**{**given, **of_all}, wishes=Wishes(**{**asked, **of_text}))


async def events_of(script: Script, **changes: Any) -> list[TextEvent]:
    pipeline = pipeline_over(FakeSource(script))
    prepared = await pipeline.prepare(request(**changes))
    return [event async for event in pipeline.stream(prepared)]


@pytest.mark.parametrize("asked, is_default", [(None, True), (3, False)])
async def test_the_route_is_told_which_lengths_nobody_asked_for(
    asked: int | None, is_default: bool
) -> None:
    pipeline = pipeline_over(FakeSource(says("a")))
    prepared = await pipeline.prepare(request(max_tokens=asked, default_max_tokens=16))
    assert prepared.routed.is_default_length is is_default


async def test_workers_that_leave_while_a_prompt_is_encoded_do_not_make_its_room_negative() -> None:
    class Leaving(InProcessText):
        async def encode(
            self, prompt: TextPrompt | ChatPrompt, max_context_tokens: int, caller: Caller = NOBODY
        ) -> list[int]:
            limits.append(4)
            return await super().encode(prompt, max_context_tokens)

    limits = [100]
    model = replace(byte_model(), context_limit=lambda: limits[-1])
    pipeline = CompletionPipeline(model, FakeSource(says("ok")), Leaving(model))
    asked = structs.replace(request(), prompt=ChatPrompt((("user", "Hi"),)))
    routed = (await pipeline.prepare(asked)).routed
    assert len(limits) == 2
    assert len(routed.token_ids) + routed.sampling.max_tokens == 100


async def test_a_drain_waits_for_the_running_and_refuses_the_new() -> None:
    in_flight = Lifespan.opened("router")
    with in_flight.admit():
        in_flight.advance(ProcessState.DRAINING)
        with pytest.raises(Draining), in_flight.admit():
            pass
        assert not await in_flight.wait_idle(0.01)
    assert await in_flight.wait_idle(0.01)


async def test_merged_streams_keep_their_own_order_and_close_together() -> None:
    source = FakeSource(says("ab"))
    pipeline = pipeline_over(source)
    streams = [pipeline.stream(await pipeline.prepare(request(text))) for text in ("1", "2", "3")]
    texts = ["", "", ""]
    async for index, event in merge(streams, LoopShare()):
        if not isinstance(event, Completed):
            texts[index] += event.text
    assert texts == ["ab"] * 3
    assert source.num_closed == 3


async def test_the_prompts_of_a_body_begin_in_turns_of_their_own() -> None:
    begun: list[int] = []

    async def told(routed: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        begun.append(turns)
        async for event in says("a")(routed):
            yield event

    pipeline = pipeline_over(FakeSource(told))
    streams = [pipeline.stream(await pipeline.prepare(request(str(i)))) for i in range(8)]
    turns = 0

    async def read() -> None:
        async for _ in merge(streams, LoopShare(0.0)):
            pass

    reading = asyncio.ensure_future(read())
    while not reading.done():
        turns += 1
        await asyncio.sleep(0)
    assert len(set(begun)) == 8


async def test_the_prompts_of_a_body_share_one_automaton_and_who_waits_makes_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[StopAutomaton] = []

    def noted(stops: Sequence[str]) -> StopAutomaton:
        made.append(StopAutomaton(stops))
        return made[-1]

    async def waits_first(routed: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        await admitted.wait()
        async for event in says("abc")(routed):
            yield event

    admitted = asyncio.Event()
    pipeline = pipeline_over(FakeSource(waits_first))
    wishes = request(stop=("b",)).wishes
    monkeypatch.setattr("router.text.stop_strings.StopAutomaton", noted)
    asked = [structs.replace(request(str(i)), wishes=wishes) for i in range(4)]
    prepared = [await pipeline.prepare(each) for each in asked]
    merged = merge([pipeline.stream(each) for each in prepared], LoopShare())
    reading = asyncio.ensure_future(anext(merged))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not made
    admitted.set()
    await reading
    assert [event async for _, event in merged]
    assert len(made) == 1


async def test_a_failure_of_one_merged_stream_ends_all() -> None:
    def lost_or_not(routed: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        bad = bytes(routed.token_ids) == b"bad"
        return fails(WorkerLost("lost"))(routed) if bad else talks_forever()(routed)

    source = FakeSource(lost_or_not)
    pipeline = pipeline_over(source)
    streams = [pipeline.stream(await pipeline.prepare(request(text))) for text in ("good", "bad")]
    with pytest.raises(WorkerLost):
        async with aclosing(merge(streams, LoopShare())) as merged:
            async for _ in merged:
                pass
    assert source.num_closed == 2


async def test_a_prompt_whose_wait_is_cancelled_elsewhere_ends_the_request() -> None:
    async def waits_in_vain(routed: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        answer: asyncio.Future[StreamEvent] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(answer.cancel)
        yield await answer

    source = FakeSource(waits_in_vain)
    pipeline = pipeline_over(source)
    streams = [pipeline.stream(await pipeline.prepare(request(text))) for text in ("1", "2")]
    async with asyncio.timeout(10):
        with pytest.raises(CancelledByOthers):
            async with aclosing(merge(streams, LoopShare())) as merged:
                async for _ in merged:
                    pass


async def test_merged_streams_wait_for_a_reader_that_is_slow() -> None:
    num_made = 0

    async def counted(routed: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        nonlocal num_made
        while True:
            await asyncio.sleep(0)
            num_made += 1
            yield ChoiceTokens(0, [GeneratedToken(65)])

    pipeline = pipeline_over(FakeSource(counted))
    streams = [pipeline.stream(await pipeline.prepare(request(text))) for text in ("1", "2")]
    async with aclosing(merge(streams, LoopShare())) as merged:
        await anext(merged)
        for _ in range(20 * MAX_BUFFERED_EVENTS):
            await asyncio.sleep(0)
        assert num_made <= MAX_BUFFERED_EVENTS + 4


class BrokenTaker:
    def is_ready(self) -> bool:
        return True

    def take(self, delta: TextDelta) -> None:
        raise ValueError("no words for it")


async def test_what_cannot_be_told_where_it_comes_is_our_error_and_ends_the_request() -> None:
    source = FakeSource(says("abc"))
    pipeline = pipeline_over(source)
    prepared = await pipeline.prepare(request("x"))
    with pytest.raises(InternalError, match="its log says why"):
        async with aclosing(pipeline.stream(prepared, BrokenTaker())) as events:
            async for _ in events:
                pass
    assert source.num_closed == 1


async def test_a_stream_that_ends_without_a_summary_is_our_error() -> None:
    async def silent(routed: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        yield ChoiceTokens(0, [GeneratedToken(65)])

    with pytest.raises(InternalError, match="without a result"):
        await events_of(silent)


async def test_tokens_for_a_choice_that_does_not_exist_are_our_error() -> None:
    async def strange(routed: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        yield ChoiceTokens(3, [GeneratedToken(65)])

    with pytest.raises(InternalError, match="choice 3 of 1"):
        await events_of(strange)


async def test_a_request_ended_by_stop_strings_is_summed_up_by_its_source() -> None:
    events = await events_of(talks_forever("ab."), stop=("b.",))
    end = events[-1]
    assert isinstance(end, Completed)
    assert end.usage == Usage(2, 3, cached_tokens=3)
    assert end.timing == Timing(ttft_ms=12.5, queue_ms=2.0, decode_worker="d0")


async def test_the_source_hears_of_a_stop_string_before_the_text_goes_on() -> None:
    source = FakeSource(talks_forever("a."))
    pipeline = pipeline_over(source)
    prepared = await pipeline.prepare(request(stop=(".",)))
    async with aclosing(pipeline.stream(prepared)) as events:
        first = await anext(events)
        assert not isinstance(first, Completed)
        assert (first.text, first.finish_reason) == ("a", FinishReason.STOP)
        assert source.finished == [0]


async def test_the_last_visible_text_does_not_wait_for_the_sources_last_word() -> None:
    async def never_sums_up(routed: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        yield ChoiceTokens(0, [GeneratedToken(byte) for byte in b"a."])
        await asyncio.Event().wait()

    class Silent(FakeSource):
        async def generate(
            self,
            routed: RoutedRequest,
            counts: Sequence[ChoiceCount] | None = None,
            taker: TokenTaker | None = None,
        ) -> AsyncGenerator[StreamEvent, None]:
            choices = RunningChoices(counts or new_counts(1))
            async for event in self.script(routed):
                assert isinstance(event, ChoiceTokens) and choices.take(event)
                yield event

    pipeline = pipeline_over(Silent(never_sums_up))
    prepared = await pipeline.prepare(request(stop=(".",)))
    async with aclosing(pipeline.stream(prepared)) as events, asyncio.timeout(20):
        first = await anext(events)
        assert not isinstance(first, Completed)
        assert first.finish_reason is FinishReason.STOP


async def test_one_stopped_choice_does_not_end_the_others() -> None:
    async def two(routed: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        yield ChoiceTokens(0, [GeneratedToken(byte) for byte in b"a."])
        yield ChoiceTokens(1, [GeneratedToken(byte) for byte in b"ab"])
        yield ChoiceTokens(0, [GeneratedToken(byte) for byte in b"more"])
        yield ChoiceTokens(1, [GeneratedToken(byte) for byte in b"c"], FinishReason.LENGTH)

    events = await events_of(
        two, stop=(".",), sampling=SamplingParams(max_tokens=1, n=2), max_tokens=100
    )
    texts = ["", ""]
    for event in events[:-1]:
        assert not isinstance(event, Completed)
        texts[event.choice] += event.text
    assert texts == ["a", "abc"]
    assert isinstance(events[-1], Completed)
    assert events[-1].usage.completion_tokens == 5


async def test_a_request_leaves_two_log_lines_with_its_id() -> None:
    with capture_logs() as lines:
        await events_of(says("ok"))
    assert [line["event"] for line in lines] == ["request accepted", "request ended"]
    assert {line["request_id"] for line in lines} == {"r1"}
    assert lines[1]["outcome"] == "completed"
    assert lines[1]["completion_tokens"] == 3
    assert lines[1]["ttft_ms"] == 12.5


async def test_failures_and_departures_are_logged_once_with_their_outcome() -> None:
    with capture_logs() as lines, pytest.raises(WorkerLost):
        await events_of(fails(WorkerLost("lost"), after="x"))
    assert [line.get("outcome") for line in lines] == [None, "worker_lost"]
    pipeline = pipeline_over(FakeSource(talks_forever()))
    prepared = await pipeline.prepare(request())
    with capture_logs() as lines:
        async with aclosing(pipeline.stream(prepared)) as events:
            await anext(events)
    assert [line.get("outcome") for line in lines] == [None, "cancelled"]


def test_seeds_of_either_sign_map_to_64_bits() -> None:
    assert checked_seed(-1) == 2**64 - 1
    assert checked_seed(7) == 7
    assert checked_seed(2**64 - 1) == 2**64 - 1


async def test_who_asks_for_no_seed_gets_one_from_the_source_that_was_given() -> None:
    model, drawn = byte_model(), Random(3)
    source = FakeSource(says("ok"))
    pipeline = CompletionPipeline(model, source, InProcessText(model), chance=Random(3))
    wishes = [request(seed=seed) for seed in (None, 7, None)]
    seeds = [(await pipeline.prepare(wish)).routed.sampling.seed for wish in wishes]
    assert seeds == [drawn.getrandbits(64), 7, drawn.getrandbits(64)]


async def test_without_a_source_no_two_seeds_are_alike() -> None:
    pipeline = pipeline_over(FakeSource(says("ok")))
    seeds = {(await pipeline.prepare(request())).routed.sampling.seed for _ in range(20)}
    assert len(seeds) == 20


def test_no_client_salt_can_name_another_tenant() -> None:
    assert combined_salt("a", "") == "a"
    salts = {combined_salt(tenant, salt) for tenant in ("", "a", "1:a") for salt in ("x", "1:x")}
    assert len(salts) == 6
