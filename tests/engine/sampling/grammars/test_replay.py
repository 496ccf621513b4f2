"""A grammar's state is a function of the tokens: what is interrupted goes on as it would have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from cluster.generation import BegunChoice, FinishReason, GeneratedToken
from engine.contract.commands import (
    ChoiceToken,
    Deliver,
    GenerateRequest,
    PrefillMode,
    Seed,
    Submit,
)
from engine.contract.messages import Frame
from engine.offline.queue import Completion, collect, generate
from engine.sampling.grammars.masked_row import MaskedRow
from engine.step.engine import Engine
from engine.step.mask_rows import MAX_AT_ONCE
from engine.step.requests.lifecycle import SequenceState
from router.grammar.json_schema import schema_grammar
from tests.engine.sampling.grammars.grammar_engine import (
    BLOCK_SIZE,
    PROMPT,
    engine,
    replica,
    request,
)
from tests.engine.sampling.grammars.own_schemas import OWN
from tests.engine.step.engine_scenario import copy_kv, run_until_ended

NAMES = ["person", "union in list", "tree", "unicode names"]
MAX_STEPS = 10**6
"""Of which most wait for a grammar that is compiled beside them."""


def body_of(name: str, request_id: str = "a", **changes: Any) -> GenerateRequest:
    grammar = schema_grammar(OWN[name], param="s")
    return request(request_id, grammar, **({"max_tokens": 40, "seed": 7} | changes))


def undisturbed(body: GenerateRequest) -> Completion:
    return generate(engine(), [body])[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", [{"temperature": 0.0}, {"temperature": 1.0}])
def test_an_answer_that_another_engine_began_goes_on_as_it_would_have(
    name: str, way: dict[str, Any]
) -> None:
    body = body_of(name, **way)
    whole = undisturbed(body).token_ids()
    for num_begun in (1, len(whole) // 2, len(whole) - 1):
        resumed = structs.replace(body, resume=[BegunChoice(0, whole[:num_begun])])
        assert undisturbed(resumed).token_ids() == whole[num_begun:]


def test_no_step_waits_for_an_answer_that_another_engine_began() -> None:
    body = body_of("invoice", temperature=1.0)
    whole = undisturbed(body).token_ids()
    assert len(whole) > MAX_AT_ONCE + 2
    for num_begun, is_apart in ((MAX_AT_ONCE, False), (MAX_AT_ONCE + 1, True)):
        running, watched = engine(), list[bool]()
        masks = running.masking._masks
        assert masks is not None
        begin = masks.begin

        def begun(rows: Sequence[MaskedRow], begin: Any = begin, seen: Any = watched) -> None:
            seen += [row.constraint.is_watched for row in rows]
            begin(rows)

        masks.begin = begun  # type: ignore[method-assign]
        resumed = structs.replace(body, resume=[BegunChoice(0, whole[:num_begun])])
        assert generate(running, [resumed])[0].token_ids() == whole[num_begun:]
        assert watched[0] is is_apart and not watched[-1]


def test_several_choices_go_on_each_from_its_own_tokens() -> None:
    body = body_of("person", n=3, temperature=1.0)
    whole = undisturbed(body)
    begun = [BegunChoice(c, whole.token_ids(c)[: 2 + c]) for c in range(3)]
    rest = undisturbed(structs.replace(body, resume=begun))
    for choice in range(3):
        assert rest.token_ids(choice) == whole.token_ids(choice)[2 + choice :]


def test_preempted_answers_are_those_of_an_engine_with_room() -> None:
    bodies = [body_of("person", f"r{i}", seed=i, temperature=1.0) for i in range(4)]
    roomy = {body.request_id: undisturbed(body).token_ids() for body in bodies}
    tight = engine(replica(num_blocks=14), prefix_cache=False)
    for body in bodies:
        tight.apply(Submit(body))
    done = run_until_ended(tight, list(roomy), MAX_STEPS)
    assert tight.load.now().num_preemptions > 0
    assert {i: completion.token_ids() for i, completion in done.items()} == roomy


@pytest.mark.parametrize("name", NAMES)
def test_a_prefill_workers_first_token_is_masked_and_counts_once(name: str) -> None:
    body = body_of(name, temperature=1.0)
    expected = undisturbed(body)
    source, target = replica(), replica()
    frames = exported(engine(source), structs.replace(body, mode=PrefillMode.EXPORT))
    first = [event.token for frame in frames for event in frame.tokens]
    assert [token.token_id for token in first] == expected.token_ids()[:1]
    done = decoded(engine(target), body, frames, first, (source, target))
    assert done.token_ids() == expected.token_ids()
    assert done.finish_reasons == expected.finish_reasons


def test_a_first_token_that_the_grammar_does_not_allow_ends_the_request() -> None:
    body = body_of("person")
    source, target = replica(), replica()
    frames = exported(engine(source), structs.replace(body, mode=PrefillMode.EXPORT))
    wrong = [GeneratedToken(PROMPT[0])]
    done = decoded(engine(target), body, frames, wrong, (source, target))
    assert done.ended is not None and done.ended.error_code == "grammar_failed"


def test_a_grammar_whose_first_token_is_all_needs_no_decode_worker() -> None:
    body = body_of("null", mode=PrefillMode.EXPORT, max_tokens=1)
    frames = exported(engine(), body)
    [event] = [event for frame in frames for event in frame.tokens]
    assert event.finish_reason is FinishReason.LENGTH


def exported(running: Engine, body: GenerateRequest) -> list[Frame]:
    """Until its prompt is computed, or it is over."""
    running.apply(Submit(body))
    frames = [running.step()]
    while len(running.table) > running.table.counts[SequenceState.EXPORTED]:
        frames.append(running.step())
    return frames


def decoded(
    running: Engine,
    body: GenerateRequest,
    frames: list[Frame],
    first: list[GeneratedToken],
    replicas: tuple[Any, Any],
) -> Completion:
    """By another engine, into which the blocks were copied."""
    source, target = replicas
    running.apply(Submit(structs.replace(body, mode=PrefillMode.REMOTE)))
    while not (reserved := running.step().reserved):
        pass
    blocks = [i for f in frames for item in f.prefilled for i in item.span.block_ids]
    copy_kv(source.kv, target.kv, list(zip(blocks, reserved[0].block_ids, strict=True)))
    running.apply(Deliver("a", 0, -(-len(PROMPT) // BLOCK_SIZE)))
    running.apply(Seed("a", [ChoiceToken(0, first[0])]))
    done = {"a": Completion()}
    while done["a"].ended is None:
        collect(running.step(), done)
    return done["a"]
