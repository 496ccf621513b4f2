"""What guessing by a model takes, as measured: rounds of one token each, and their rows.

    drafts      rounds * round_ms + rows * row_ms; in a round every sequence gets a token
    reading     tokens * read_ms: prompts that came without the draft model

Before the first sample it is expected to be the part of the target's steps that its weights are of
the target's. What was found too dear is not measured any more: while nothing is guessed, the price
goes back to what is expected, and is tried again.
"""

from __future__ import annotations

from engine.step.meters.load_meter import TwoTermFit
from engine.step.planning.step_cost import StepCost

_SURPRISE = 3.0
"""What took longer than so many times the expected counts as that: it lost its core."""
_IDLE_FADE = 0.995
_SAMPLE = 0.1
"""Weight of a sample against what was known before, for reading."""
_TRUST = 3.0
"""Samples that count as much as what is expected."""


class GuessPrice:
    """Milliseconds, of one draft model."""

    def __init__(self, share: float) -> None:
        """`share`: bytes of its weights over the target's."""
        self._share = share
        self._drafts = TwoTermFit()
        self._weight = 0.0
        self._read_ms = 0.0

    def token_ms(self, num_sequences: int, cost: StepCost) -> float:
        """Of one token, where as many sequences are drafted for at once."""
        return self._drafts_ms(1, num_sequences, cost) / num_sequences

    def read_ms(self, cost: StepCost) -> float:
        """Of one token of a prompt; 0: nothing was measured yet."""
        return self._read_ms or self._share * (cost.token_ms or cost.row_ms)

    def note_drafts(self, num_rounds: int, num_rows: int, took_ms: float, cost: StepCost) -> None:
        """So many rounds with so many rows in all took so long."""
        expected_ms = self._drafts_ms(num_rounds, num_rows, cost)
        took_ms = min(took_ms, _SURPRISE * expected_ms) if expected_ms else took_ms
        self._drafts.add(num_rounds, num_rows, took_ms)
        self._weight = min(self._weight + 1.0, 10 * _TRUST)

    def note_reading(self, num_tokens: int, took_ms: float) -> None:
        """A chunk of so many tokens took so long."""
        token_ms, known_ms = took_ms / num_tokens, self._read_ms
        if known_ms:
            token_ms = min(token_ms, _SURPRISE * known_ms)
        self._read_ms += (token_ms - known_ms) * (_SAMPLE if known_ms else 1.0)

    def note_idle(self) -> None:
        """A step without drafts."""
        self._weight *= _IDLE_FADE

    def _drafts_ms(self, num_rounds: int, num_rows: int, cost: StepCost) -> float:
        expected = self._share * (num_rounds * cost.base_ms + num_rows * cost.row_ms)
        if not self._weight:
            return expected
        measured = self._drafts.of(num_rounds, num_rows)
        return (self._weight * measured + _TRUST * expected) / (self._weight + _TRUST)
