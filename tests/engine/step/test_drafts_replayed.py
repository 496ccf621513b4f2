"""Drafts verified by replayed, padded steps of a real decoder, between steps that run ahead: the
tokens of plain steps, as its CPU kernels give a row the same bits in every batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from engine.offline.queue import Completion, generate
from engine.runner.draft_shapes import DraftShapes
from engine.step.drafters.lookup import prompt_lookup
from engine.step.drafting.draft import MakeGuesser
from tests.engine.step.guessing import TickingClock, oracles
from tests.engine.step.test_run_ahead_replayed import CONTEXT, MAX_SEQS, Runners, bodies
from tests.kernels.kernel_sets import cpu_set

SHAPES = DraftShapes(max_num_seqs=MAX_SEQS, max_batch_tokens=16, max_context_tokens=CONTEXT)


@pytest.fixture
def runners(tmp_path: Path) -> Runners:
    cpu_set("native")
    return Runners(tmp_path, SHAPES)


def both(runners: Runners, make_guesser: MakeGuesser) -> tuple[list[Completion], list[Completion]]:
    """Without drafts, one after the other; with them, replayed and all at once."""
    asked = bodies()
    plain = generate(runners.engine(runners.plain, runners.pools[0]), asked)
    asked = [
        structs.replace(body, prediction=done.token_ids())
        for body, done in zip(asked, plain, strict=True)
    ]
    drafting = runners.engine(
        runners.replayed, runners.pools[1], make_guesser=make_guesser, clock=TickingClock()
    )
    found = generate(drafting, asked)
    assert drafting.check_invariants() == []
    return plain, found


@pytest.mark.parametrize("mistakes", [0.0, 0.3])
def test_tokens_are_those_of_plain_steps(runners: Runners, mistakes: float) -> None:
    plain, found = both(runners, oracles(mistakes))
    assert [done.tokens for done in found] == [done.tokens for done in plain]
    assert [done.finish_reasons for done in found] == [done.finish_reasons for done in plain]
    ends = [done.ended for done in found if done.ended is not None]
    assert sum(ended.accepted_draft_tokens for ended in ends) > 20


def test_lookups_give_the_tokens_of_plain_steps(runners: Runners) -> None:
    plain, found = both(runners, prompt_lookup())
    assert [done.tokens for done in found] == [done.tokens for done in plain]
