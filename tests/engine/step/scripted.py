"""A model without weights that says a text, mostly: what it says elsewhere is noise. And a head
that knows that text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from engine.model.ragged_batch import RaggedBatch
from engine.process.fake_runner import FakeRunner
from engine.runner.model_runner import DraftHeads, Replica
from tests.engine.step.head_guessing import FakeHead, LeavingRunner, Ledger

LEAN = 23.0
"""Towards the text's token: the noise of 49,152 others together weighs as much as one of 15."""


class ScriptedRunner(FakeRunner):
    """A FakeRunner of prompts of one length that leans towards one answer, place by place."""

    num_prompt = 0
    script: Sequence[int] = ()

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        """See ModelRunner."""
        logits = super().forward(batch)
        for row, place in zip(logits, batch.positions[batch.logit_rows].tolist(), strict=True):
            _lean(row, self.script, place + 1 - self.num_prompt)
        return logits


class LeavingScriptedRunner(ScriptedRunner, LeavingRunner):
    """One whose steps leave states."""


class ScriptedHead(FakeHead):
    """It leans as the target does."""

    num_prompt = 0
    script: Sequence[int] = ()

    def _logits(self, seen: Sequence[int]) -> torch.Tensor:
        logits = super()._logits(seen)
        _lean(logits, self.script, len(seen) - self.num_prompt)
        return logits


def scripted(target: Replica, num_prompt: int, script: Sequence[int]) -> Replica:
    """The same, but it leans towards that answer."""
    runner = ScriptedRunner(target.kv, target.vocab_size)
    runner.num_prompt, runner.script = num_prompt, script
    return replace(target, runner=runner)


def with_scripted_head(target: Replica, num_prompt: int, script: Sequence[int]) -> Replica:
    """The same, and a head over it."""
    ledger = Ledger()
    runner = LeavingScriptedRunner(target.kv, target.vocab_size, ledger)
    head = ScriptedHead(runner, torch.zeros_like(target.kv), ledger, target.vocab_size)
    for each in (runner, head):
        each.num_prompt, each.script = num_prompt, script
    return replace(target, runner=runner, heads=DraftHeads(name="head", runner=head, share=0.05))


def _lean(logits: torch.Tensor, script: Sequence[int], at: int) -> None:
    if 0 <= at < len(script):
        logits[script[at]] += LEAN
