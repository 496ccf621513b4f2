"""The life of one sequence (one choice of one request).

    QUEUED -----> PREFILLING -----> DECODING -----> FINISHED
      |  ^---------' preempted |       | preempted: back to QUEUED, tokens kept
      |                        '-> EXPORTED ------> FINISHED     (pinned for a reader; what is
      |                              ^                            cached already, at once)
      |------------------------------'
      '---------> RECEIVING -----> DECODING
                      |----------> PREFILLING                    (PrefillLocally)
                      '----------> QUEUED                        (the same, of a scored prompt)

From every state but the last four: FINISHED, FAILED, CANCELLED, EXPIRED.
"""

from __future__ import annotations

import enum
from collections import Counter

from cluster.deadline import Clock


class SequenceState(enum.Enum):
    """Where a sequence stands."""

    QUEUED = "queued"
    RECEIVING = "receiving"
    PREFILLING = "prefilling"
    DECODING = "decoding"
    EXPORTED = "exported"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


FINAL = frozenset(
    {
        SequenceState.FINISHED,
        SequenceState.FAILED,
        SequenceState.CANCELLED,
        SequenceState.EXPIRED,
    }
)

_S = SequenceState
TRANSITIONS: dict[SequenceState, frozenset[SequenceState]] = {
    _S.QUEUED: FINAL | {_S.RECEIVING, _S.PREFILLING, _S.EXPORTED},
    _S.RECEIVING: FINAL | {_S.DECODING, _S.PREFILLING, _S.QUEUED},
    _S.PREFILLING: FINAL | {_S.DECODING, _S.EXPORTED, _S.QUEUED},
    _S.DECODING: FINAL | {_S.QUEUED},
    _S.EXPORTED: FINAL,
} | {state: frozenset() for state in FINAL}


class Life:
    """One sequence's state, and when it first entered each."""

    __slots__ = ("_clock", "_counts", "_stamps", "state")

    def __init__(self, clock: Clock, counts: Counter[SequenceState]) -> None:
        """`counts` is shared by all sequences of an engine: how many stand in each state."""
        self._clock = clock
        self._counts = counts
        self.state = SequenceState.QUEUED
        self._stamps = {self.state: clock()}
        counts[self.state] += 1

    @property
    def is_over(self) -> bool:
        """True in a final state."""
        return self.state in FINAL

    def advance(self, state: SequenceState) -> None:
        """The one place where a state changes: checks the table, stamps the time, counts."""
        assert state in TRANSITIONS[self.state], f"{self.state.value} cannot become {state.value}"
        self._counts[self.state] -= 1
        self._counts[state] += 1
        self._stamps.setdefault(state, self._clock())
        self.state = state

    def entered_s(self, state: SequenceState) -> float | None:
        """When the state was first entered; None: never."""
        return self._stamps.get(state)

    def fork(self) -> Life:
        """The life of another sequence with the same past."""
        other = Life(self._clock, self._counts)
        self._counts[other.state] -= 1
        self._counts[self.state] += 1
        other.state = self.state
        other._stamps = dict(self._stamps)
        return other
