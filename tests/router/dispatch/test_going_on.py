"""Answers whose decode worker is lost: another one goes on, and the client notices nothing."""

import asyncio
from dataclasses import replace

import pytest

from cluster.errors import DeadlineExceeded, RequestGivenUp, SplitserveError, WorkerLost
from cluster.generation import FinishReason
from cluster.identity import Role
from cluster.pairing import Pairing
from router.dispatch import attempts, evacuation
from router.fleet import fleet
from router.front.generation_request import GenerationRequest, TokenPrompt
from tests.router.dispatch_bench import PROMPT, outcome, time_limits
from tests.router.fake_decode_worker import Frame, until
from tests.router.front_fakes import pipeline_over
from tests.router.model_worker import (
    CACHED_TOKENS,
    ModelWorker,
    Trouble,
    dies,
    fails,
    loses_its_engine,
    says_nothing_more,
)
from tests.router.planes import PAIRING, prefill_member
from tests.router.streams_bench import KINDS, LENGTH, Answer, Bench, bench, undisturbed, wishes

EVERY_TOKEN = range(1, 41)


def num_relayed(here: Bench) -> int:
    """Tokens of the answers that stay with their workers."""
    staying = here.plane.source._evacuation._staying.values()
    return sum(each.choices.num_relayed_tokens for one in staying for each in one.values())


@pytest.mark.parametrize("kind", KINDS)
async def test_after_whatever_token_its_worker_is_lost_the_answer_is_the_same(kind: str) -> None:
    async with bench() as here:
        asked, expected = await undisturbed(here, kind)
        assert expected.usage is not None and expected.usage.cached_tokens == CACHED_TOKENS
        assert (expected.reasons[0] is FinishReason.STOP) == bool(asked.stop)

        async def ask(after: int) -> Answer:
            return await here.ask(f"r{after}", asked, Trouble(after, loses_its_engine))

        for answer in await asyncio.gather(*(ask(after) for after in EVERY_TOKEN)):
            assert answer == expected
        num_continued = sum(len(here.given(f"r{after}")) == 2 for after in EVERY_TOKEN)
        assert num_continued >= 28
        assert here.continued("worker_lost") == num_continued
        assert outcome(here.plane, "ok") == len(EVERY_TOKEN) + (2 if asked.stop else 1)


@pytest.mark.parametrize("how", [dies, fails])
async def test_it_goes_on_however_its_worker_was_lost(how) -> None:  # type: ignore[no-untyped-def]
    async with bench() as here:
        asked, expected = await undisturbed(here, "two choices")
        for after in (1, 2, 17, 40):
            await until(lambda: len(here.plane.fleet.open(Role.DECODE)) == 2)
            assert await here.ask(f"r{after}", asked, Trouble(after, how)) == expected
            [first, second] = sorted(here.given(f"r{after}"), key=lambda given: len(given[1]))
            assert (first[1], second[1]) == ([], [after, after])


async def test_a_worker_that_drains_is_left_and_what_it_says_later_is_not_heard() -> None:
    async with bench() as here:
        asked, expected = await undisturbed(here, "two choices")
        answering = asyncio.create_task(here.ask("r1", asked, Trouble(3, says_nothing_more)))
        await until(lambda: here.plane.source._evacuation.num_staying > 0)
        first = here.holder_of("r1")
        await here.drain(first)
        await until(lambda: len(here.given("r1")) == 2)
        for frame in [*first.frames_of(first.submitted[-1])][3:]:
            first.send(frame)
        assert await answering == expected
        assert "r1" in first.cancelled
        assert here.continued("drained") == 1
        assert here.plane.fleet.find(first.member().key).cooldown.admits  # type: ignore[union-attr]


async def test_answers_leave_a_worker_that_drains_a_few_at_a_time() -> None:
    num_answers = 3 * evacuation.MAX_MOVING
    async with bench(1) as here, ModelWorker("decode-other", here.troubles) as other:
        asked, expected = await undisturbed(here, "one choice")
        waits = [Trouble(5, says_nothing_more), Trouble(0, says_nothing_more)]
        answering = [
            asyncio.create_task(here.ask(f"r{number}", asked, *waits))
            for number in range(num_answers)
        ]
        await until(lambda: here.plane.source._evacuation.num_staying == num_answers)
        await here.drain(here.workers[0])
        await here.plane.store.join(other.member())
        for number in range(num_answers):
            await until(lambda least=number: len(other.submitted) > least)  # type: ignore[misc]
            assert len(other.submitted) <= number + evacuation.MAX_MOVING
            for frame in other.frames_of(other.submitted[number]):
                other.send(frame)
        for answer in await asyncio.gather(*answering):
            assert answer == expected
        assert here.continued("drained") == num_answers


async def test_an_answer_that_has_moved_often_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "MAX_MOVES", 1)
    async with bench(3) as here:
        asked, expected = await undisturbed(here, "one choice")
        waits = [Trouble(3, says_nothing_more)] * 2
        answering = asyncio.create_task(here.ask("r1", asked, *waits))
        evacuation = here.plane.source._evacuation
        await until(lambda: evacuation.num_staying > 0)
        first = here.holder_of("r1")
        await here.drain(first)
        await until(lambda: len(here.given("r1")) == 2 and evacuation.num_staying > 0)
        [second] = [worker for worker, begun in here.given("r1") if begun]
        await here.drain(second)
        for frame in [*second.frames_of(second.submitted[-1])][3:]:
            second.send(frame)
        assert await answering == expected
        assert len(here.given("r1")) == 2


async def test_an_answer_stays_with_a_worker_that_drains_where_nobody_else_is() -> None:
    async with bench(1) as here:
        asked, expected = await undisturbed(here, "one choice")
        answering = asyncio.create_task(here.ask("r1", asked, Trouble(3, says_nothing_more)))
        await until(lambda: here.plane.source._evacuation.num_staying > 0)
        [worker] = here.workers
        await here.drain(worker)
        for frame in [*worker.frames_of(worker.submitted[-1])][3:]:
            worker.send(frame)
        assert await answering == expected
        assert worker.cancelled == []


async def test_what_has_cost_two_workers_is_not_given_to_a_third() -> None:
    async with bench(3) as here:
        killing = [Trouble(3, loses_its_engine), Trouble(2, loses_its_engine)]
        with pytest.raises(RequestGivenUp, match="decode workers were lost 2 times"):
            await here.ask("r1", KINDS["one choice"], *killing)
        assert sorted(begun for _, begun in here.given("r1")) == [[], [3]]
        assert outcome(here.plane, "request_given_up") == 1


async def test_a_worker_that_stops_counts_for_no_loss() -> None:
    async with bench(3) as here:
        asked, expected = await undisturbed(here, "one choice")
        troubles = [Trouble(3, says_nothing_more), Trouble(4, loses_its_engine)]
        answering = asyncio.create_task(here.ask("r1", asked, *troubles))
        await until(lambda: num_relayed(here) == 3)
        await here.drain(here.holder_of("r1"))
        assert await answering == expected
        assert sorted(begun for _, begun in here.given("r1")) == [[], [3], [7]]


async def test_where_answers_may_not_go_on_the_client_is_told() -> None:
    async with bench(continue_streams=False) as here:
        with pytest.raises(WorkerLost):
            await here.ask("r1", KINDS["one choice"], Trouble(3, loses_its_engine))
        assert len(here.given("r1")) == 1


@pytest.mark.parametrize(
    "pairing",
    [replace(PAIRING, weights_digest="cc"), replace(PAIRING, protocol_version=3)],
    ids=["other weights", "an older version"],
)
async def test_an_answer_goes_on_only_where_the_same_tokens_would_come(
    pairing: Pairing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "NO_WORKER_GRACE_S", 0.05)
    async with bench(1) as here, ModelWorker("decode-other", here.troubles) as other:
        await here.plane.store.join(other.member(pairing=pairing))
        await until(lambda: len(here.plane.fleet.open(Role.DECODE)) == 2)
        for number in range(8):
            name = f"r{number}"
            with pytest.raises(SplitserveError):
                await here.ask(name, KINDS["one choice"], *[Trouble(3, loses_its_engine)] * 2)
        asked = [s.request_id for worker in (*here.workers, other) for s in worker.submitted]
        assert sorted(asked) == [f"r{number}" for number in range(8)]


async def test_where_it_goes_on_is_priced_with_what_it_has() -> None:
    """Prompt and answer so far are what somebody has to compute: here, or a prefill worker."""
    async with bench() as here:
        await here.plane.store.join(prefill_member())
        answer = await here.ask("r1", wishes(), Trouble(40, loses_its_engine))
        assert answer.texts == (await here.ask("r2", wishes())).texts
        decision = here.plane.decisions.find("r1")
        assert decision is not None
        assert (decision.view.prompt_tokens, decision.view.max_tokens) == (len(PROMPT) + 40, 2)
        [note] = decision.notes
        assert "goes on after 40 tokens of decode-" in note and "worker_lost" in note
        [submit] = [s for w in here.workers for s in w.submitted if s.resume]
        assert bool(submit.prefill) == bool(decision.route.prefill)


async def test_several_choices_are_computed_where_they_go_on() -> None:
    async with bench() as here:
        await here.plane.store.join(prefill_member())
        await here.ask("r1", wishes(n=2), Trouble(40, loses_its_engine))
        [submit] = [s for w in here.workers for s in w.submitted if s.resume]
        assert not submit.prefill
        decision = here.plane.decisions.find("r1")
        assert decision is not None and decision.route.reason.value == "several_go_on"


async def test_several_choices_count_as_what_is_computed_for_all_of_them() -> None:
    async with bench() as here:
        asked, held = wishes(n=2), Trouble(0, says_nothing_more)
        lost = Trouble(20, loses_its_engine)
        answering = asyncio.create_task(here.ask("r1", asked, lost, held))
        await until(lambda: len(here.given("r1")) == 2)
        [(worker, _)] = [given for given in here.given("r1") if given[1]]
        item = here.plane.fleet.find(worker.member().key)
        assert item is not None and item.pending_prefill_tokens == len(PROMPT) + 2 * 20
        frame, *rest = worker.frames_of(worker.submitted[-1])
        first, second = frame.tokens
        worker.send(Frame(computed=frame.computed, tokens=[first]))
        await until(lambda: item.pending_prefill_tokens == 20)
        for frame in (Frame(tokens=[second]), *rest):
            worker.send(frame)
        await answering
        assert (item.pending_prefill_tokens, item.pending_prompts) == (0, 0)


async def test_times_are_those_of_the_first_token_and_add_up() -> None:
    async with bench() as here:
        timing = (await here.ask("r1", wishes(), Trouble(5, loses_its_engine))).timing
        assert timing.prefill_worker == "prefill-9"
        stages = timing.queue_ms + timing.prefill_ms + timing.kv_ms + timing.decode_ms
        assert timing.ttft_ms == pytest.approx(stages)
        assert timing.prefill_ms <= 2.0 < timing.itl_ms * (LENGTH - 1) + 2.0
        [(worker, _)] = [given for given in here.given("r1") if given[1]]
        assert timing.decode_worker == worker.worker_id
        count = here.plane.registry.get_sample_value("splitserve_stream_pause_seconds_count")
        assert count == 1


async def test_a_seed_that_nobody_named_is_drawn_once() -> None:
    async with bench() as here:
        await here.ask("r1", wishes(seed=None), Trouble(5, loses_its_engine))
        seeds = {s.sampling.seed for worker in here.workers for s in worker.submitted}
        assert len(seeds) == 1


async def test_the_clients_own_deadline_covers_all_of_its_workers() -> None:
    async with bench() as here:
        here.troubles["r1"] = [Trouble(3, loses_its_engine), Trouble(1, says_nothing_more)]
        request = GenerationRequest(
            request_id="r1",
            prompt=TokenPrompt(PROMPT),
            wishes=wishes(),
            limits=time_limits(1.0),
        )
        pipeline = pipeline_over(here.plane.source)
        prepared = await pipeline.prepare(request)
        with pytest.raises(DeadlineExceeded, match="deadline of 1.0 s passed"):
            _ = [event async for event in pipeline.stream(prepared)]
        assert len(here.given("r1")) == 2
