"""Draft models without weights: one that is the target, and ones that err."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from engine.model.ragged_batch import RaggedBatch
from engine.process.fake_runner import FakeRunner
from engine.runner.model_runner import DraftModel, Replica
from engine.step.drafters.model import ModelDrafter
from engine.step.drafting.draft import Draft
from engine.step.engine import Engine
from tests.engine.runner.lazy_drawer import LazyDrawer
from tests.engine.step.engine_scenario import VOCAB_SIZE, small_engine
from tests.engine.step.guessing import TickingClock


class ErringRunner(FakeRunner):
    """The target's logits, turned by one token where a share of places is reached."""

    every = 0
    """Of places, which one is wrong; 0: none."""
    num_calls = 0
    fails_at: frozenset[int] = frozenset()
    """Calls that raise after they have written."""

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        """See ModelRunner."""
        logits = super().forward(batch)
        self.num_calls += 1
        if self.num_calls in self.fails_at:
            raise RuntimeError("the draft model is not well")
        if self.every:
            at = batch.positions[batch.logit_rows]
            is_wrong = at % self.every == 0
            logits[is_wrong] = logits[is_wrong].roll(1, dims=-1)
        return logits


class _Silent:
    """A Guesser that has no guess."""

    def guess(self, token_ids: Sequence[int], most: int, least: float = 0.0) -> Draft | None:
        """See Guesser."""
        return None


def nobody(num_prompt: int, prediction: Sequence[int]) -> _Silent:
    """A MakeGuesser: nothing is looked up."""
    return _Silent()


def with_draft(
    target: Replica,
    *,
    every: int = 0,
    fails_at: frozenset[int] = frozenset(),
    max_context_tokens: int = 1000,
    vocab_size: int = VOCAB_SIZE,
    is_late: bool = False,
) -> Replica:
    """A replica and a draft model whose KV is in a pool of its own. `is_late`: on a device that
    does nothing before somebody waits."""
    kv = torch.zeros_like(target.kv)
    erring = ErringRunner(kv, vocab_size)
    erring.every, erring.fails_at = every, fails_at
    runner = LazyDrawer(erring, kv, vocab_size) if is_late else erring
    draft = DraftModel(
        name="draft",
        runner=runner,
        vocab_size=vocab_size,
        max_context_tokens=max_context_tokens,
        share=0.1,
    )
    return replace(target, draft=draft)


def model_engine(target: Replica, *, every: int = 0, **more: Any) -> Engine:
    """An engine whose draft model is wrong at each `every`-th place; by its clock drafts pay."""
    names = ("fails_at", "max_context_tokens", "vocab_size", "is_late")
    draft = {name: more.pop(name) for name in names if name in more}
    return small_engine(
        with_draft(target, every=every, **draft),
        clock=more.pop("clock", None) or TickingClock(),
        make_guesser=nobody,
        **({"max_batch_tokens": 32, "max_num_seqs": 8} | more),
    )


def drafter_of(engine: Engine) -> ModelDrafter:
    """Its draft model's."""
    assert engine._speculation is not None
    [drafter] = [one for one in engine._speculation._drafters if isinstance(one, ModelDrafter)]
    return drafter


def num_misses(engine: Engine) -> float:
    """Guesses that were wrong: where the draft is the target, its KV was."""
    rates = drafter_of(engine)._care.rates
    return rates._trials - rates._kept
