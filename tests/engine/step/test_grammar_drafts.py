"""Answers with a grammar are drafted for, and are those without drafts, to the last token."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Sequence
from typing import Any

import jsonschema
import pytest
from msgspec import structs

from cluster.engine_options import EngineOptions
from cluster.generation import FinishReason
from engine.contract.commands import Cancel, GenerateRequest, PrefillMode, Submit
from engine.contract.draft_numbers import DrafterKind, DraftNumbers
from engine.offline.queue import Completion, collect
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.sampling.grammars.constraint import Constraint
from engine.sampling.grammars.masked_row import MaskedRow
from engine.step.drafting.draft import MAX_DRAFT_TOKENS, Draft, MakeGuesser
from engine.step.engine import Engine
from engine.step.requests.lifecycle import SequenceState
from router.grammar.json_schema import schema_grammar
from router.grammar.lark import choice_grammar
from tests.engine.sampling.grammars.grammar_engine import (
    BLOCK_SIZE,
    PROMPT,
    grammar_tokenizer,
    replica,
    request,
    text_of,
)
from tests.engine.sampling.grammars.late_masks import AT_ONCE, late_masks
from tests.engine.sampling.grammars.own_schemas import OWN
from tests.engine.step.engine_scenario import check
from tests.engine.step.guessing import TickingClock, oracles

ALWAYS_RIGHT, ALWAYS_WRONG, NOW_AND_THEN = 0.0, 1.0, 0.3
TOO_DEAR = "no other test's answers end with these words"
NAMES = ["person", "union in list", "tree", "unicode names"]
WORDY = schema_grammar(
    {
        "type": "object",
        "properties": {
            "a rather long name of a property": {"type": "boolean"},
            "another one that nobody could mistake": {"type": "boolean"},
        },
        "required": [
            "a rather long name of a property",
            "another one that nobody could mistake",
        ],
        "additionalProperties": False,
    },
    param="s",
)


def plain_engine(**options: Any) -> Engine:
    """Without drafts; masks are waited for."""
    return _engine(None, **options)


def drafting_engine(mistakes: float = ALWAYS_RIGHT, **options: Any) -> Engine:
    """Whose requests predict their answers."""
    return _engine(oracles(mistakes, shortest=MAX_DRAFT_TOKENS), **options)


def _engine(make_guesser: MakeGuesser | None, **options: Any) -> Engine:
    num_blocks, clock = options.pop("num_blocks", 256), options.pop("clock", None)
    given = {"block_size_tokens": BLOCK_SIZE, "max_batch_tokens": 64, "max_num_seqs": 16} | options
    engine = Engine(
        replica(num_blocks),
        EngineOptions(**given),
        clock=clock or TickingClock(),
        grammars=GrammarCompiler(grammar_tokenizer),
        make_guesser=make_guesser,
    )
    engine.masking.waits = AT_ONCE
    return engine


class Mute:
    """A Guesser that knows nothing."""

    def guess(self, token_ids: Sequence[int], most: int, least: float = 0.0) -> Draft | None:
        """See Guesser."""
        return None


def forcing_engine(**options: Any) -> Engine:
    """Drafts what is forced, and nothing else."""
    return _engine(lambda num_prompt, prediction: Mute(), **options)


def answers(engine: Engine, bodies: list[GenerateRequest]) -> tuple[list[Completion], int]:
    """And in how many steps that gave tokens."""
    done = {body.request_id: Completion() for body in bodies}
    num_steps = 0
    for body in bodies:
        engine.apply(Submit(body))
    while not all(each.ended for each in done.values()):
        frame = engine.step()
        check(engine)
        collect(frame, done)
        num_steps += bool(frame.tokens)
    assert engine.placement.pool.leases == frozenset()
    return list(done.values()), num_steps


def answered(
    engine: Engine, bodies: Sequence[GenerateRequest]
) -> tuple[list[Completion], DraftNumbers]:
    """And what became of drafts."""
    done, numbers = {body.request_id: Completion() for body in bodies}, DraftNumbers()
    for body in bodies:
        engine.apply(Submit(body))
    while not all(each.ended for each in done.values()):
        frame = engine.step()
        check(engine)
        collect(frame, done)
        numbers = frame.draft_numbers or numbers
    assert engine.placement.pool.leases == frozenset()
    return list(done.values()), numbers


def body_of(name: str, request_id: str = "a", **changes: Any) -> GenerateRequest:
    grammar = schema_grammar(OWN[name], param="s")
    return request(request_id, grammar, **({"max_tokens": 40, "seed": 7} | changes))


def predicted(bodies: list[GenerateRequest]) -> tuple[list[GenerateRequest], list[Completion]]:
    """Each with its answer as the prediction, and the answers."""
    plain, _ = answers(plain_engine(), bodies)
    pairs = zip(bodies, plain, strict=True)
    return [structs.replace(body, prediction=done.token_ids()) for body, done in pairs], plain


@pytest.mark.parametrize("mistakes", [ALWAYS_RIGHT, NOW_AND_THEN, ALWAYS_WRONG])
@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 1.0, "logprobs": 2}])
def test_answers_side_by_side_are_those_without_drafts(
    mistakes: float, sampling: dict[str, Any]
) -> None:
    """Some with a grammar, and some without."""
    bodies = [body_of(name, name, seed=i, **sampling) for i, name in enumerate(NAMES)]
    bodies += [request(f"free {i}", None, max_tokens=20, seed=i, **sampling) for i in range(3)]
    asked, plain = predicted(bodies)
    found, _ = answers(drafting_engine(mistakes), asked)
    for one, other in zip(found, plain, strict=True):
        assert one.tokens == other.tokens
        assert one.finish_reasons == other.finish_reasons


def test_a_drafter_that_is_right_makes_several_tokens_of_a_step_in_a_grammar() -> None:
    asked, [plain] = predicted([body_of("person", temperature=1.0)])
    [found], num_steps = answers(drafting_engine(), asked)
    assert found.tokens == plain.tokens
    assert num_steps <= 4 + len(plain.token_ids()) // 4


def test_forced_tokens_need_no_guess_and_are_those_without() -> None:
    body = request("a", WORDY, max_tokens=120, seed=3, temperature=1.0)
    [plain], num_plain = answers(plain_engine(), [body])
    [found], num_steps = answers(forcing_engine(), [body])
    assert found.tokens == plain.tokens
    assert plain.finish_reasons == {0: FinishReason.STOP}
    assert found.ended is not None
    assert found.ended.accepted_draft_tokens == found.ended.draft_tokens > 4
    # the end is one of them: no token comes behind it in its step
    assert num_steps == num_plain - found.ended.accepted_draft_tokens + 1
    assert isinstance(json.loads(text_of(found.token_ids())), dict)


def test_forced_tokens_are_counted_apart_from_those_that_were_guessed() -> None:
    body = request("a", WORDY, max_tokens=120, seed=3, temperature=1.0)
    [asked], _ = predicted([body])
    for engine, kinds in [
        (forcing_engine(), {DrafterKind.GRAMMAR}),
        (drafting_engine(), {DrafterKind.GRAMMAR, DrafterKind.NGRAM}),
        (drafting_engine(NOW_AND_THEN), {DrafterKind.GRAMMAR, DrafterKind.NGRAM}),
    ]:
        [found], numbers = answered(engine, [asked])
        assert found.ended is not None
        assert set(numbers.by_drafter) == kinds
        places = numbers.by_drafter.values()
        assert sum(sum(place.tried) for place in places) == found.ended.draft_tokens
        assert sum(sum(place.kept) for place in places) == found.ended.accepted_draft_tokens
        forced = numbers.by_drafter[DrafterKind.GRAMMAR]
        assert sum(forced.tried) == sum(forced.kept) > 0


def test_a_forced_run_ends_with_max_tokens_and_with_stop_tokens() -> None:
    word = "a sentence of which every token but the first is the only one that may come"
    grammar = choice_grammar([word, "no"], param="c")
    whole, _ = answers(plain_engine(), [request("a", grammar, logit_bias={}, temperature=0.0)])
    token_ids = whole[0].token_ids()
    for most in range(1, len(token_ids)):
        body = request("a", grammar, max_tokens=most, logit_bias={}, temperature=0.0)
        [found], _ = answers(forcing_engine(), [body])
        assert found.token_ids() == token_ids[:most]
        assert found.finish_reasons == {0: FinishReason.LENGTH}
    for stop in token_ids[:-1]:
        ends = {"stop_token_ids": (stop,), "logit_bias": {}, "temperature": 0.0}
        [found], _ = answers(forcing_engine(), [request("a", grammar, **ends)])
        assert found.token_ids() == token_ids[: token_ids.index(stop) + 1]


def test_preempted_answers_with_drafts_are_those_of_an_engine_with_room() -> None:
    bodies = [body_of("person", f"r{i}", seed=i, temperature=1.0) for i in range(4)]
    asked, plain = predicted(bodies)
    tight = drafting_engine(NOW_AND_THEN, num_blocks=18, prefix_cache=False)
    found, _ = answers(tight, asked)
    assert tight.load.now().num_preemptions > 0
    assert [done.tokens for done in found] == [done.tokens for done in plain]


def test_each_choice_walks_its_own_grammar() -> None:
    body = body_of("person", n=3, temperature=1.0)
    asked, [plain] = predicted([body])
    [found], _ = answers(drafting_engine(NOW_AND_THEN), asked)
    assert found.tokens == plain.tokens


def test_who_waits_for_a_mask_holds_up_nobody_and_goes_on_as_it_would_have() -> None:
    slow = body_of("person", "slow", temperature=1.0)
    others = [body_of("tree", "quick", temperature=1.0), request("free", None, max_tokens=30)]
    [expected], _ = answers(plain_engine(), [slow])
    for engine in (plain_engine(), forcing_engine()):
        done = {body.request_id: Completion() for body in (slow, *others)}
        engine.apply(Submit(slow))
        while not done["slow"].tokens:
            collect(engine.step(), done)
        masks = late_masks(engine, _is_of(engine, "slow"))
        for body in others:
            engine.apply(Submit(body))
        while not all(done[body.request_id].ended for body in others):
            collect(engine.step(), done)
            check(engine)
        given = done["slow"].token_ids()
        assert done["slow"].ended is None and len(given) < len(expected.token_ids())
        assert masks.num_late == 1 and engine.has_work_soon
        while not done["slow"].ended:
            masks.arrive()
            collect(engine.step(), done)
            check(engine)
        assert done["slow"].tokens == expected.tokens


def test_a_prompt_whose_first_mask_is_late_is_not_computed_again() -> None:
    engine = plain_engine(max_batch_tokens=8)
    masks = late_masks(engine, lambda row: True)
    body = body_of("person", prompt=PROMPT * 3)
    done = {"a": Completion()}
    engine.apply(Submit(body))
    for _ in range(10**6):
        collect(engine.step(), done)
        check(engine)
        if masks.num_late:
            break
    [sequence] = next(iter(engine.table)).sequences
    for _ in range(5):
        collect(engine.step(), done)
    assert sequence.num_remaining == 1 and not done["a"].tokens
    assert not engine.has_work and engine.has_work_soon
    num_computed = engine._computation._runner.num_tokens  # type: ignore[attr-defined]
    while not done["a"].ended:
        masks.arrive()
        collect(engine.step(), done)
    [expected], _ = answers(plain_engine(), [body])
    assert done["a"].tokens == expected.tokens
    assert num_computed <= 3 * len(PROMPT)


def test_a_prefill_worker_whose_mask_is_late_announces_all_of_its_prompt_once() -> None:
    engine = plain_engine()
    masks = late_masks(engine, lambda row: True)
    engine.apply(Submit(body_of("person", mode=PrefillMode.EXPORT)))
    blocks, tokens = list[int](), 0
    while not engine.table.counts[SequenceState.EXPORTED]:
        frame = engine.step()
        check(engine)
        blocks += [i for item in frame.prefilled for i in range(len(item.span.block_ids))]
        tokens += len(frame.tokens)
        masks.arrive()
    assert (len(blocks), tokens) == (-(-len(PROMPT) // BLOCK_SIZE), 1)


def test_who_is_cancelled_while_its_mask_is_made_leaves_nothing_behind() -> None:
    engine = plain_engine()
    masks = late_masks(engine, lambda row: True)
    engine.apply(Submit(body_of("person")))
    while not masks.num_late:
        engine.step()
    engine.step()
    engine.apply(Cancel("a"))
    engine.step()
    check(engine)
    assert engine.is_idle and engine.placement.pool.leases == frozenset()
    masks.arrive()
    [found], _ = answers(_waiting(engine), [request("b", None, max_tokens=3)])
    assert found.ended is not None and not found.ended.error_code


def test_a_job_of_masks_that_raises_ends_its_requests_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = plain_engine()
    masks = engine.masking._masks
    assert masks is not None

    def raises(rows: list[MaskedRow]) -> float:
        raise MemoryError("no room for masks")

    monkeypatch.setattr(masks, "_make", raises)
    found, _ = answers(engine, [body_of("person"), request("free", None, max_tokens=5)])
    assert [done.ended.error_code for done in found if done.ended] == ["grammar_failed", ""]


def test_a_draft_that_cannot_be_walked_costs_its_answer_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, [plain] = predicted([body_of("person", temperature=1.0)])
    engine, failed = drafting_engine(), list[int]()
    masks = engine.masking._masks
    assert masks is not None

    def spoils(rows: list[MaskedRow]) -> None:
        failed.append(len(rows))
        for row in rows:
            row.constraint.fail("a limit of the library")

    monkeypatch.setattr(masks, "_fill_drafted", spoils)
    [found], _ = answers(engine, asked)
    assert failed and found.tokens == plain.tokens


def _fail_amid(engine: Engine, request_id: str) -> None:
    body, done = body_of("person", request_id), Completion()
    engine.apply(Submit(body))
    while not done.ended:
        collect(engine.step(), {request_id: done})
        request = engine.table.get(request_id)
        if done.tokens and request is not None:
            [sequence] = request.sequences
            assert sequence.constraint is not None
            sequence.constraint.fail(TOO_DEAR)
    assert done.ended.error_code == "grammar_failed" and done.ended.error_message == TOO_DEAR


@pytest.mark.parametrize("make_engine", [plain_engine, drafting_engine])
def test_an_answer_whose_grammar_fails_takes_all_that_it_had_with_it(
    make_engine: Callable[[], Engine],
) -> None:
    """Its matcher, and the logits of the step in which it was told so."""
    engine = make_engine()
    for number in range(3):
        _fail_amid(engine, f"r{number}")
    answers(engine, [body_of("person", "last")])
    gc.collect()
    every = (each for each in gc.get_objects() if isinstance(each, Constraint))
    assert not [each for each in every if each.failure == TOO_DEAR]


def test_every_finished_answer_with_drafts_is_valid_under_its_schema() -> None:
    bodies = [
        request(name, schema_grammar(schema, param="s"), temperature=0.9, seed=seed)
        for seed, (name, schema) in enumerate(OWN.items())
    ]
    found, _ = answers(forcing_engine(num_blocks=2048), bodies)
    finished = [
        (name, done)
        for name, done in zip(OWN, found, strict=True)
        if done.finish_reasons[0] is FinishReason.STOP
    ]
    assert len(finished) >= 45
    for name, done in finished:
        jsonschema.Draft202012Validator(OWN[name]).validate(json.loads(text_of(done.token_ids())))


def _is_of(engine: Engine, request_id: str) -> Any:
    """Rows of that request."""

    def is_it(row: MaskedRow) -> bool:
        of = engine.table.get(request_id)
        return of is not None and any(s.constraint is row.constraint for s in of.sequences)

    return is_it


def _waiting(engine: Engine) -> Engine:
    engine.masking.waits = AT_ONCE
    return engine
