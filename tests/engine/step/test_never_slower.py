"""Whoever drafts, an engine is not slower than without; by a clock that the computing turns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.contract.commands import Submit
from engine.model.ragged_batch import RaggedBatch
from engine.offline.queue import Completion, collect
from engine.runner.model_runner import Replica
from engine.step.drafting.draft import MAX_DRAFT_TOKENS
from engine.step.drafting.draft_account import FIRST_CREDIT
from engine.step.engine import Engine
from tests.engine.step.engine_scenario import (
    VirtualClock,
    expected_tokens,
    request,
    small_engine,
    small_replica,
)
from tests.engine.step.head_guessing import with_head
from tests.engine.step.model_guessing import nobody, with_draft

RIGHT, WRONG, NOW_AND_THEN = 0, 1, 2
NUM_TOKENS = 150
BASE_MS, ROW_MS = 2.0, 0.2


class Taking:
    """A runner whose forwards take so long, whoever's they are."""

    def __init__(
        self, runner: Any, clock: VirtualClock, base_ms: float, row_ms: float, extra_ms: float = 0.0
    ) -> None:
        """`extra_ms`: of a forward with drafts, that nobody expects."""
        self._runner, self._clock = runner, clock
        self._base_ms, self._row_ms, self._extra_ms = base_ms, row_ms, extra_ms

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def forward(self, batch: RaggedBatch, *more: torch.Tensor) -> Any:
        """As the runner's."""
        took_ms = self._base_ms + self._row_ms * len(batch.token_ids)
        if len(batch.logit_rows) > len(batch.context_lens):
            took_ms += self._extra_ms
        self._clock.now_s += took_ms / 1e3
        return self._runner.forward(batch, *more)


def drafting(kind: str, every: int, clock: VirtualClock, *, guess_ms: float, **extra: float) -> Any:
    """A replica whose drafter takes `guess_ms` for a guess of each sequence."""
    target = small_replica(4096)
    made = with_head(target, every=every) if kind == "heads" else with_draft(target, every=every)
    runner = Taking(made.runner, clock, BASE_MS, ROW_MS, **extra)
    own = made.heads if kind == "heads" else made.draft
    assert own is not None
    guessing = replace(own, runner=Taking(own.runner, clock, guess_ms, guess_ms / 16))
    name = "heads" if kind == "heads" else "draft"
    return replace(made, runner=runner, **{name: guessing})


def taken_ms(replica: Replica, clock: VirtualClock, num_seqs: int, *, drafts: bool) -> float:
    """Of all answers, one after the other at each stream."""
    engine = small_engine(
        replica,
        clock=clock,
        make_guesser=nobody if drafts else None,
        speculation="off",
        max_batch_tokens=64 + num_seqs,
        max_num_seqs=num_seqs,
    )
    bodies = [
        request(str(i), [i % 5, 1, 2], max_tokens=NUM_TOKENS, temperature=i % 2, seed=i)
        for i in range(num_seqs)
    ]
    began_s = clock.now_s
    found = collected(engine, bodies)
    for body in bodies[:3]:
        assert found[body.request_id].token_ids() == expected_tokens(body)
    return (clock.now_s - began_s) * 1e3


def collected(engine: Engine, bodies: list[Any]) -> dict[str, Completion]:
    found = {body.request_id: Completion() for body in bodies}
    for body in bodies:
        engine.apply(Submit(body))
    for _ in range(2 * NUM_TOKENS):
        collect(engine.step(), found)
        if all(done.ended for done in found.values()):
            return found
    raise AssertionError("not ended")


@pytest.mark.parametrize("num_seqs", [1, 16])
@pytest.mark.parametrize("kind", ["heads", "model"])
@pytest.mark.parametrize(
    ("every", "guess_ms", "extra_ms"),
    [(WRONG, 0.05, 0.0), (WRONG, 2.0, 0.0), (RIGHT, 40.0, 0.0), (NOW_AND_THEN, 0.5, 40.0)],
    ids=["wrong", "wrong and dear", "right and too dear", "rows that cost what nobody expected"],
)
def test_a_drafter_that_does_not_pay_costs_its_credit_and_little_more(
    kind: str, every: int, guess_ms: float, extra_ms: float, num_seqs: int
) -> None:
    clock = VirtualClock()
    replica = drafting(kind, every, clock, guess_ms=guess_ms, extra_ms=extra_ms)
    plain_ms = taken_ms(replica, clock, num_seqs, drafts=False)
    took_ms = taken_ms(replica, clock, num_seqs, drafts=True)
    step_ms = BASE_MS + ROW_MS * num_seqs
    # ... and the draft, of at most as many tokens, that has spent the last of it
    beyond_ms = MAX_DRAFT_TOKENS * guess_ms * (1 + num_seqs / 16) + 2 * extra_ms
    assert took_ms <= 1.02 * plain_ms + FIRST_CREDIT * step_ms + beyond_ms


@pytest.mark.parametrize(("kind", "num_seqs"), [("heads", 1), ("heads", 16), ("model", 1)])
def test_one_that_pays_goes_on(kind: str, num_seqs: int) -> None:
    clock = VirtualClock()
    replica = drafting(kind, RIGHT, clock, guess_ms=0.1)
    plain_ms = taken_ms(replica, clock, num_seqs, drafts=False)
    took_ms = taken_ms(replica, clock, num_seqs, drafts=True)
    assert took_ms < (0.5 if num_seqs == 1 else 0.97) * plain_ms
