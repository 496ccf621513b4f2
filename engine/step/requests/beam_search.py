"""Which continuations a beam search goes on with, and which answers it has: no tensors, no blocks.

    candidates of every beam -> the likeliest together -> end a text: finished, if among the first
                                                       -> go on: the beams of the next step

Step for step what transformers 5 does (`generation/utils.py`, `_beam_search`), for one prompt. What
beams have in common is kept once: every token knows the one before it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from cluster.beam_search import BeamSearch, EarlyStopping
from cluster.generation import FinishReason, GeneratedToken
from cluster.sampling import SamplingParams

Candidates = tuple[tuple[int, float], ...]
"""Tokens that may come next, and their logprobs; likeliest first."""


@dataclass(frozen=True, slots=True, eq=False)
class BeamToken:
    """A token of an answer, and what came before it."""

    token: GeneratedToken
    before: BeamToken | None

    def all(self) -> list[GeneratedToken]:
        """From the first token of the answer to this one."""
        found, at = list[GeneratedToken](), self
        while True:
            found.append(at.token)
            if at.before is None:
                return found[::-1]
            at = at.before


@dataclass(frozen=True, slots=True)
class FinishedBeam:
    """An answer."""

    score: float
    last: BeamToken
    reason: FinishReason


@dataclass(frozen=True, slots=True)
class Beam:
    """A continuation that goes on."""

    parent: int
    """Index of the beam of the step before that it continues."""
    logprob: float
    """Of all its tokens."""
    last: BeamToken

    @property
    def token_id(self) -> int:
        """Its newest."""
        return self.last.token.token_id


_Next = tuple[float, int, int, int, float]
"""A continuation by one token, as it is sorted: its logprob, negative, with that of all before it;
the beam; its rank among those of the beam; the token; the token's own logprob."""


class BeamSearchState:
    """Of one request. `beams` are those of the step that comes; empty: not begun, or over.

    begun --advance, with candidates of each beam--> beams ... --> over
    """

    def __init__(self, params: SamplingParams, ends: frozenset[int]) -> None:
        """`ends`: tokens that end a text. `params.beams` says how to search."""
        assert params.beams is not None, "a search is asked for by its beams"
        self._asked: BeamSearch = params.beams
        self._max_tokens = params.max_tokens
        self._num_top = params.logprobs
        self._ends = ends
        self._num_generated = 0
        self._finished: list[FinishedBeam] = []
        """Best first, as many as the search is wide at most."""
        self.beams: list[Beam] = []
        self.is_over = False

    @property
    def num_candidates(self) -> int:
        """That are wanted of each beam."""
        return self._asked.num_candidates(len(self._ends))

    @property
    def num_tokens(self) -> int:
        """That all beams have got, told or not."""
        return self._asked.width * self._num_generated

    def best(self, num: int) -> list[FinishedBeam]:
        """Of those finished; as many as were asked for, once the search is over."""
        return self._finished[:num]

    def advance(self, rows: Sequence[Candidates]) -> None:
        """One more token: `rows` has the candidates of each beam, in their order; at first those of
        the prompt, alone."""
        self._num_generated += 1
        is_last = self._num_generated >= self._max_tokens
        going_on, num_known = list[Beam](), len(self._finished)
        for rank, each in enumerate(self._likeliest(rows)):
            logprob, parent, token_id = -each[0], each[1], each[3]
            ends = token_id in self._ends
            if not (ends or is_last):
                if len(going_on) < self._asked.width:
                    going_on.append(Beam(parent, logprob, self._token(rows, each)))
            elif rank < self._asked.width:
                reason = FinishReason.STOP if ends else FinishReason.LENGTH
                score = self._score(logprob, self._num_generated)
                self._finished.append(FinishedBeam(score, self._token(rows, each), reason))
        if len(self._finished) > num_known:
            self._finished.sort(key=attrgetter("score"), reverse=True)  # the older first of equals
            del self._finished[self._asked.width :]
        self.beams = going_on
        self.is_over = is_last or not self._may_improve()
        if self.is_over:
            self.beams = []

    def _likeliest(self, rows: Sequence[Candidates]) -> list[_Next]:
        """Of all beams together, the likeliest first."""
        before = [beam.logprob for beam in self.beams] or [0.0]
        found = (
            (-(known + logprob), parent, rank, token_id, logprob)
            for parent, (known, row) in enumerate(zip(before, rows, strict=True))
            for rank, (token_id, logprob) in enumerate(row)
        )
        return heapq.nsmallest(self.num_candidates, found)

    def _token(self, rows: Sequence[Candidates], each: _Next) -> BeamToken:
        _, parent, _, token_id, logprob = each
        token = GeneratedToken(token_id)
        if self._num_top is not None:
            token = GeneratedToken(token_id, logprob, rows[parent][: self._num_top])
        return BeamToken(token, self.beams[parent].last if self.beams else None)

    def _score(self, logprob: float, num_tokens: int) -> float:
        return logprob / float(num_tokens**self._asked.length_penalty)

    def _may_improve(self) -> bool:
        """Whether what goes on may be worth more than the worst that is finished."""
        asked = self._asked
        if len(self._finished) < asked.width:
            return True
        if asked.early_stopping is EarlyStopping.AT_ONCE:
            return False
        length = self._num_generated
        if asked.early_stopping is EarlyStopping.NEVER_BETTER and asked.length_penalty > 0.0:
            length = self._max_tokens
        return self._score(self.beams[0].logprob, length) > self._finished[-1].score
