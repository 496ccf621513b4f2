"""How well a model predicts the shipped text, token by token."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.offline.quality.subject import Subject

TEXT = Path(__file__).with_name("text.txt")
WINDOW_TOKENS = 1024
"""The text is read in pieces of this length, each without what came before it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One entry per predicted token."""

    losses: list[float]
    """Minus the natural logarithm of the probability of the token that came."""
    likeliest: list[int]
    """The token that the model would have said."""

    @property
    def perplexity(self) -> float:
        """exp of the mean loss."""
        return math.exp(sum(self.losses) / len(self.losses))

    def agreement(self, other: Reading) -> float:
        """Share of positions at which both would have said the same."""
        pairs = zip(self.likeliest, other.likeliest, strict=True)
        return sum(mine == theirs for mine, theirs in pairs) / len(self.likeliest)


def read_text(subject: Subject, max_tokens: int | None = None) -> Reading:
    """The whole text, or its first `max_tokens` tokens."""
    ids = subject.tokenizer.encode(TEXT.read_text())[:max_tokens]
    window = min(WINDOW_TOKENS, subject.max_context_tokens)
    losses: list[float] = []
    likeliest: list[int] = []
    for start in range(0, len(ids) - 1, window):
        piece = ids[start : start + window]
        at = 0
        for logits in subject.logits(piece):
            rows = logits[: len(piece) - 1 - at]  # the last token predicts nothing here
            at += len(logits)
            target = torch.tensor(piece[at - len(logits) + 1 : at + 1], device=logits.device)
            chosen = rows.gather(-1, target[: len(rows), None])[:, 0]
            losses += (rows.logsumexp(-1) - chosen).tolist()
            likeliest += rows.argmax(-1).tolist()
    return Reading(losses, likeliest)
