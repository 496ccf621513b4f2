"""How long a step waits for masks: no longer than it may, for all rows together."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from msgspec import structs

from engine.contract.commands import Cancel, GenerateRequest, Submit
from engine.offline.queue import Completion, collect
from engine.sampling.grammars.compiled_grammar import CompiledGrammar
from engine.sampling.grammars.constraint import Constraint
from engine.sampling.grammars.masked_row import MaskedRow
from engine.sampling.grammars.masks import NUM_WATCHERS
from engine.step.engine import Engine
from engine.step.mask_waits import STUCK_S, ForcedShare, MaskWaits
from engine.step.meters.load_meter import StepCostMeter
from engine.step.planning.step_cost import StepCost
from engine.step.step_health import EngineBroken
from router.grammar.lark import choice_grammar
from tests.engine.sampling.grammars.grammar_engine import request
from tests.engine.sampling.grammars.late_masks import AT_ONCE, late_masks
from tests.engine.step.engine_scenario import VirtualClock, check
from tests.engine.step.test_grammar_drafts import (
    answers,
    body_of,
    drafting_engine,
    forcing_engine,
    plain_engine,
    predicted,
)


class Endless:
    """A job that takes longer than anybody waits: each wait for it takes all of its time."""

    def __init__(self, clock: VirtualClock, waited_s: list[float]) -> None:
        self._clock, self._waited_s = clock, waited_s

    def done(self) -> bool:
        """Never."""
        return False

    def running(self) -> bool:
        """A thread has it."""
        return True

    def exception(self, timeout: float) -> None:
        """See Future."""
        self._clock.now_s += timeout
        self._waited_s.append(timeout)
        raise TimeoutError


@pytest.mark.parametrize("is_watched", [False, True])
def test_a_step_waits_as_long_as_it_may_for_all_rows_together_and_not_for_watched_ones(
    is_watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, waited_s = VirtualClock(), list[float]()
    engine = plain_engine(clock=clock)
    for body in (
        body_of("person", "a"),
        body_of("tree", "b"),
        request("free", None, logit_bias={}, ignore_eos=True),
    ):
        engine.apply(Submit(body))
    while engine.table.num_constrained and not all(
        s.num_generated for r in engine.table for s in r.sequences
    ):
        engine.step()
    masking = engine.masking
    for row in masking._under_way.values():
        assert row.job is not None
        row.job.result(60.0)
    masking.settle()
    monkeypatch.setattr(StepCostMeter, "cost", StepCost())  # nobody has measured
    masking.waits = MaskWaits(plan_s=0.001, step_s=0.004, lone_s=0.0)
    maker: Any = masking._masks

    def begin(rows: list[MaskedRow]) -> None:
        for row in rows:
            row.job = Endless(clock, waited_s)  # type: ignore[assignment]

    monkeypatch.setattr(maker, "begin", begin)
    constraints = [s.constraint for r in engine.table for s in r.sequences if s.constraint]
    for constraint in constraints:
        constraint.is_watched, constraint.outlook = is_watched, None
    masking.look_ahead()
    given = [len(engine.step().tokens) for _ in range(5)]
    assert given == [1] * 5  # the one without a grammar
    assert sum(waited_s) == pytest.approx(0.0 if is_watched else 0.004)
    assert engine.has_work_soon


def test_a_mask_that_is_never_made_ends_the_engine() -> None:
    clock = VirtualClock()
    engine = plain_engine(clock=clock)
    engine.apply(Submit(body_of("person")))
    late_masks(engine, lambda row: True)
    while not engine.masking.is_busy:
        engine.step()
    for _ in range(int(STUCK_S) - 1):
        clock.now_s += 1.0
        engine.step()
    clock.now_s += 1.0
    with pytest.raises(EngineBroken, match=r"a mask of the grammar [0-9a-f]{16} was not made"):
        engine.step()


def test_a_mask_that_stands_in_line_for_a_thread_is_not_stuck() -> None:
    """As others are made before it: each of them may compile a grammar anew."""
    clock = VirtualClock()
    engine = plain_engine(clock=clock)
    engine.apply(Submit(structs.replace(body_of("person"), timeout_ms=math.inf)))
    masks = late_masks(engine, lambda row: True)
    masks.are_in_line = True
    while not engine.masking.is_busy:
        engine.step()
    for _ in range(3 * int(STUCK_S)):
        clock.now_s += 1.0
        engine.step()
    [(job, _)] = masks._late
    job.set_running_or_notify_cancel()
    for _ in range(int(STUCK_S)):
        engine.step()
        clock.now_s += 1.0
    with pytest.raises(EngineBroken):
        engine.step()


def test_an_answer_that_was_cancelled_is_not_followed_once_more() -> None:
    engine = plain_engine()
    for name in ("a", "b"):
        engine.apply(Submit(body_of("person", name)))
    masks = late_masks(engine, lambda row: True)
    while len(engine.masking._under_way) < 2:
        engine.step()
    [cancelled] = [s for r in engine.table for s in r.sequences if r.request_id == "a"]
    row = engine.masking._under_way[cancelled]
    row.constraint._spend()
    engine.apply(Cancel("a"))
    masks.arrive()
    engine.step()
    assert cancelled not in engine.masking._under_way
    assert cancelled not in engine.masking._missed
    assert row.constraint.is_spent, "it has not begun again"


def test_an_engine_that_was_stopped_has_not_waited_for_masks_meanwhile() -> None:
    clock = VirtualClock()
    engine = plain_engine(clock=clock)
    engine.apply(Submit(structs.replace(body_of("person"), timeout_ms=math.inf)))
    masks = late_masks(engine, lambda row: True)
    while not engine.masking.is_busy:
        engine.step()
    clock.now_s += 100 * STUCK_S
    engine.step()
    assert engine.masking.is_busy
    masks.arrive()
    assert len(engine.step().tokens) == 1


def test_rows_that_are_handed_back_are_begun_again() -> None:
    bodies = [body_of("person", f"r{i}", max_tokens=8, seed=i) for i in range(4)]
    expected, _ = answers(plain_engine(), bodies)
    engine = plain_engine()
    takes_long = count(step=0.02).__next__  # each mask does: no job makes two
    late_masks(engine, lambda row: False, clock=takes_long)
    found, _ = answers(engine, bodies)
    assert [done.tokens for done in found] == [done.tokens for done in expected]


def test_a_sequence_sits_out_until_a_walk_that_nobody_waits_for_has_ended() -> None:
    """Its matcher is used by one job at a time."""
    asked, [plain] = predicted([body_of("person", temperature=1.0)])
    engine, walks = drafting_engine(), list[MaskedRow]()

    def is_late(row: MaskedRow) -> bool:
        if row.draft:
            walks.append(row)
        return bool(row.draft)

    masks = late_masks(engine, is_late)
    done = {asked[0].request_id: Completion()}
    engine.apply(Submit(asked[0]))
    while not walks:
        collect(engine.step(), done)
    given = done["a"].token_ids()
    for _ in range(5):
        collect(engine.step(), done)
        check(engine)
    assert len(walks) == 1 and done["a"].token_ids() == given and engine.has_work_soon
    while not done["a"].ended:
        masks.arrive()
        collect(engine.step(), done)
    assert done["a"].tokens == plain.tokens


class MeanwhileRunner:
    """An engine's runner; during each forward pass something else happens."""

    def __init__(self, engine: Engine, meanwhile: Callable[[], None]) -> None:
        self._runner, self._meanwhile = engine._computation._runner, meanwhile
        engine._computation._runner = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def forward(self, batch: Any) -> Any:
        """See ModelRunner."""
        logits = self._runner.forward(batch)
        self._meanwhile()
        return logits


def begun_beside(body: GenerateRequest, *, is_alone: bool) -> tuple[Engine, dict[str, Completion]]:
    """An engine that drafts for it, and beside it has one without a grammar, unless it is alone."""
    engine = drafting_engine()
    bodies = [body] if is_alone else [body, FREE]
    for each in bodies:
        engine.apply(Submit(each))
    return engine, {each.request_id: Completion() for each in bodies}


FREE = request("free", None, logit_bias={}, ignore_eos=True, max_tokens=200)


@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize("arrives", ["before", "during"])
def test_a_prompt_whose_late_walk_ends_with_its_step_waits_another_and_ends_nobody(
    is_alone: bool, arrives: str
) -> None:
    """It was preempted, had the token that its last mask was for, and was preempted again."""
    [body], [plain] = predicted([body_of("person", temperature=1.0)])
    engine, done = begun_beside(body, is_alone=is_alone)
    masks, is_due = late_masks(engine, lambda row: bool(row.draft)), False
    MeanwhileRunner(engine, lambda: masks.arrive() if is_due else None)
    while not masks.num_late:
        collect(engine.step(), done)
    asked = engine.table.get("a")
    assert asked is not None
    [sequence] = asked.sequences
    assert sequence.constraint is not None and sequence.constraint.outlook is not None
    outlook = sequence.constraint.outlook
    outlook.masks = outlook.masks[: 1 + sequence.num_generated - outlook.num_known]
    engine._planner._preempt(asked, sequence)
    while outlook.reaches(sequence.num_generated):
        collect(engine.step(), done)
    engine._planner._preempt(asked, sequence)
    assert masks.num_late == 1
    if arrives == "before":
        masks.arrive()
    is_due = True
    while not done["a"].ended:
        collect(engine.step(), done)
        check(engine)
    assert done["a"].tokens == plain.tokens
    assert is_alone or not done["free"].ended


@pytest.mark.parametrize("seed", range(6))
def test_answers_preempted_at_any_time_whose_masks_and_walks_come_at_any_time_are_whole(
    seed: int,
) -> None:
    chance = random.Random(seed)
    asked, plain = predicted(
        [body_of("person", f"r{i}", seed=i, temperature=1.0) for i in range(3)]
    )
    engine = drafting_engine()
    masks = late_masks(engine, lambda row: bool(row.draft) or chance.random() < 0.2)

    def arrive() -> None:
        if chance.random() < 0.15:
            masks.arrive(chance.randint(1, 3))

    MeanwhileRunner(engine, arrive)
    done = {each.request_id: Completion() for each in (*asked, FREE)}
    for each in (*asked, FREE):
        engine.apply(Submit(each))
    while not all(done[each.request_id].ended for each in asked):
        collect(engine.step(), done)
        check(engine)
        if done["free"].ended:
            masks.arrive()  # there may be nothing to compute
        if chance.random() < 0.5:
            running = [(r, s) for r, s in engine.table.running() if r.request_id != "free"]
            for one in running and chance.sample(running, 1):
                engine._planner._preempt(*one)
    assert [done[each.request_id].tokens for each in asked] == [each.tokens for each in plain]
    free = done["free"].ended
    assert free is None or not free.error_code


@pytest.mark.parametrize("has_drafts", [False, True])
def test_a_mask_that_is_lost_against_all_promises_ends_its_own_request_alone(
    has_drafts: bool,
) -> None:
    [body], _ = predicted([body_of("person")])
    engine = drafting_engine() if has_drafts else plain_engine()
    done = {"a": Completion(), "free": Completion()}
    is_due = False

    def lose() -> None:
        found = engine.table.get("a")
        if is_due and found is not None:
            for sequence in found.sequences:
                assert sequence.constraint is not None
                sequence.constraint.outlook = None

    MeanwhileRunner(engine, lose)
    for each in (body, FREE):
        engine.apply(Submit(each))
    while not done["a"].tokens:
        collect(engine.step(), done)
    engine.masking.take = lambda spans: frozenset()  # type: ignore[method-assign]
    is_due = True
    while not done["a"].ended:
        collect(engine.step(), done)
    assert done["a"].ended.error_code == "internal_error"
    num_tokens = len(done["free"].token_ids())
    collect(engine.step(), done)
    assert not done["free"].ended and len(done["free"].token_ids()) == num_tokens + 1


@pytest.mark.parametrize("has_spare_cores", [False, True])
def test_forced_tokens_that_are_rare_are_looked_for_where_cores_are_spare(
    has_spare_cores: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere one mask of each fourth step tells when they are no longer rare."""
    engine, forces = forcing_engine(), list[bool]()
    masking = engine.masking
    masking.has_spare_cores, masking._forced.value = has_spare_cores, 0.0
    masking.waits = replace(AT_ONCE, least_forced=0.02)
    maker: Any = masking._masks
    begin = maker.begin

    def notes(rows: list[MaskedRow]) -> None:
        forces.extend(row.most_forced > 0 for row in rows if row.new)
        begin(rows)

    monkeypatch.setattr(maker, "begin", notes)
    words = "sentence of which every token but the first is the only one that may come after it"
    grammar = choice_grammar([f"a {words}", f"the {words}"], param="c")
    bodies = [request(f"r{i}", grammar, logit_bias={}, temperature=0.0) for i in range(4)]
    expected, _ = answers(plain_engine(), bodies)
    found, _ = answers(engine, bodies)
    assert [done.tokens for done in found] == [done.tokens for done in expected]
    assert forces[:4] == [has_spare_cores] * 4
    assert any(forces) and masking._forced.value > 0.0


@pytest.mark.parametrize("is_watched", [False, True])
def test_masks_that_could_not_be_begun_are_begun_again(
    is_watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for those whose job there is not."""
    [expected], _ = answers(plain_engine(), [body_of("person", max_tokens=8)])
    engine, done = plain_engine(), {"a": Completion()}
    masking = engine.masking
    engine.apply(Submit(body_of("person", "a", max_tokens=8)))
    while not any(s.num_generated for r in engine.table for s in r.sequences):
        collect(engine.step(), done)
    [sequence] = [s for r in engine.table for s in r.sequences]
    row = masking._under_way.pop(sequence, None)
    masking._missed.clear()
    if row is not None and row.job is not None:
        row.job.result(60.0)
        masking._note(row, None)
    assert sequence.constraint is not None and sequence.constraint.outlook is not None
    outlook, sequence.constraint.outlook = sequence.constraint.outlook, None
    sequence.constraint.is_watched = is_watched

    def begin(rows: list[MaskedRow]) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(masking._masks, "begin", begin)
        with pytest.raises(RuntimeError):
            masking.look_ahead()
    assert not masking._under_way and not masking.is_busy
    sequence.constraint.outlook = outlook
    while not done["a"].ended:
        collect(engine.step(), done)
    assert done["a"].tokens == expected.tokens


def test_who_cannot_be_followed_keeps_no_other_of_its_step_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both prompts end in one step."""
    bodies = [body_of("person", "a", max_tokens=8), body_of("tree", "b", max_tokens=8)]
    [expected, _], _ = answers(plain_engine(), bodies)
    engine, follow = plain_engine(), Constraint.of

    def fails_for_b(grammar: CompiledGrammar) -> Constraint:
        request_b = engine.table.get("b")
        if request_b is not None and grammar is request_b.grammar:
            raise MemoryError("no room for its copy")
        return follow(grammar)

    monkeypatch.setattr(Constraint, "of", fails_for_b)
    [found, other], _ = answers(engine, bodies)
    assert found.tokens == expected.tokens
    assert other.ended is not None and other.ended.error_code == "internal_error"
    engine.step()
    assert not engine.masking._under_way and not engine.masking.is_busy


def test_of_a_job_that_nobody_asks_for_any_more_nothing_is_kept() -> None:
    """Where it fails, its frames have all rows of it."""
    engine = plain_engine()
    engine.apply(Submit(body_of("person", "a")))
    masks = late_masks(engine, lambda row: True)
    while not engine.masking._vigil._begun_s:
        engine.step()
    engine.apply(Cancel("a"))
    engine.step()
    masks.arrive()
    while engine.masking._under_way:
        engine.step()
    assert not engine.masking._vigil._begun_s


def test_no_thread_of_masks_is_begun_in_the_middle_of_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There may be none then."""
    engine, masks = plain_engine(), list[float]()
    maker: Any = engine.masking._masks

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    work = threading.Barrier(NUM_WATCHERS)
    for job in [maker._watchers.submit(work.wait, 60.0) for _ in range(NUM_WATCHERS)]:
        masks.append(job.result(60.0))
    assert len(masks) == NUM_WATCHERS and maker._quick.submit(lambda: 1.0).result(60.0)


def test_of_answers_that_are_over_nothing_is_kept() -> None:
    for engine in (plain_engine(), drafting_engine(), forcing_engine()):
        asked = [body_of("person", f"r{i}", seed=i, max_tokens=8) for i in range(3)]
        answers(engine, asked)
        masking = engine.masking
        for row in masking._under_way.values():
            assert row.job is not None
            row.job.result(60.0)
        engine.step()
        assert not masking._under_way and not masking._drafted
        assert not masking._looked_at and not masking._begun


def test_the_threads_of_masks_end_when_they_are_closed() -> None:
    before, engine = set(threading.enumerate()), plain_engine()
    answers(engine, [body_of("person", max_tokens=4)])
    made = [each for each in threading.enumerate() if each.name.startswith("masks")]
    own = [each for each in made if each not in before]
    assert own
    engine.masking.close()
    for each in own:
        each.join(60.0)
    assert not any(each.is_alive() for each in own)


def test_a_step_waits_for_masks_for_a_share_of_what_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a short step less than of a long one; of none that nobody has measured so much."""
    engine, left_s = plain_engine(), list[float]()
    masking = engine.masking
    settle = masking.settle

    def notes(step_s: float) -> None:
        settle(step_s)
        left_s.append(masking._patience.left_s)

    monkeypatch.setattr(masking, "settle", notes)
    masking.waits = MaskWaits(plan_s=0.0, step_share=0.25, step_s=0.004)
    for name in "ab":
        engine.apply(Submit(body_of("person", name)))
    while sum(s.num_generated > 0 for r in engine.table for s in r.sequences) < 2:
        engine.step()
    for cost in (StepCost(), StepCost(base_ms=2.0), StepCost(base_ms=60.0, row_ms=10.0)):
        monkeypatch.setattr(StepCostMeter, "cost", cost)
        left_s.clear()
        engine.step()
        assert left_s == [pytest.approx(0.25e-3 * cost.decodes_ms(2) or 0.004)]


def test_a_mask_that_stands_for_several_counts_as_they_would() -> None:
    each, sampled = ForcedShare(), ForcedShare()
    num_sampled = 0
    for _ in range(400):
        each.note(is_forced=False)
        if sampled.is_sampled():
            sampled.note(is_forced=False, num_masks=ForcedShare.SAMPLED_EACH)
            num_sampled += 1
    assert sampled.value == pytest.approx(each.value) and 0.0 < each.value < 0.02
    assert num_sampled == 400 // ForcedShare.SAMPLED_EACH


def test_nobody_waits_where_no_request_has_a_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = plain_engine()

    def fails(*given: Any) -> None:
        raise AssertionError("asked while no request has a grammar")

    for name in ("settle", "look_ahead", "begin", "take"):
        monkeypatch.setattr(engine.masking, name, fails)
    engine.apply(Submit(request("free", None, max_tokens=5)))
    num_tokens = sum(len(engine.step().tokens) for _ in range(8))
    assert num_tokens == 5
