"""A head guesses of answers in a grammar as well: by the masks that are known, and what later ones
forbid is dropped. Answers are those without, to the last token."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.engine_options import EngineOptions
from engine.contract.draft_numbers import DrafterKind
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.step.engine import Engine
from tests.engine.sampling.grammars.grammar_engine import (
    BLOCK_SIZE,
    grammar_tokenizer,
    replica,
    request,
)
from tests.engine.sampling.grammars.late_masks import AT_ONCE
from tests.engine.step.guessing import TickingClock
from tests.engine.step.head_guessing import head_of, with_head
from tests.engine.step.test_grammar_drafts import (
    NAMES,
    Mute,
    answered,
    answers,
    body_of,
    plain_engine,
)

RIGHT, NOW_AND_THEN, WRONG = 0, 3, 1


def head_engine(every: int) -> Engine:
    """Forced tokens are drafted as ever; all else the head guesses."""
    engine = Engine(
        with_head(replica(256), every=every),
        EngineOptions(block_size_tokens=BLOCK_SIZE, max_batch_tokens=64, max_num_seqs=16),
        clock=TickingClock(),
        grammars=GrammarCompiler(grammar_tokenizer),
        make_guesser=lambda num_prompt, prediction: Mute(),
    )
    engine.masking.waits = AT_ONCE
    return engine


@pytest.mark.parametrize("every", [RIGHT, NOW_AND_THEN, WRONG])
@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 1.0, "logprobs": 2}])
def test_answers_in_grammars_side_by_side_are_those_without_a_head(
    every: int, sampling: dict[str, Any]
) -> None:
    bodies = [body_of(name, name, seed=i, **sampling) for i, name in enumerate(NAMES)]
    bodies += [request("free", None, max_tokens=20, seed=9, **sampling)]
    plain, _ = answers(plain_engine(), bodies)
    engine = head_engine(every)
    found, numbers = answered(engine, bodies)
    for one, other in zip(found, plain, strict=True):
        assert one.tokens == other.tokens
        assert one.finish_reasons == other.finish_reasons
    assert sum(numbers.by_drafter[DrafterKind.HEADS].tried) > 0
    assert head_of(engine).num_strange == 0


def test_what_a_grammar_leaves_is_what_a_right_head_guesses_first() -> None:
    """Its own likeliest token is noise that no grammar allows: the mask makes it right."""
    bodies = [body_of("person", str(seed), temperature=1.0, seed=seed) for seed in range(6)]
    plain, _ = answers(plain_engine(), bodies)
    found, numbers = answered(head_engine(RIGHT), bodies)
    assert [one.tokens for one in found] == [one.tokens for one in plain]
    heads = numbers.by_drafter[DrafterKind.HEADS]
    assert heads.kept[0] > 0.9 * heads.tried[0] > 3
