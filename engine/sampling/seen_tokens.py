"""How often a text that grows has each of its tokens: for penalties, which would count all of it
anew for every row otherwise.

    text     | prompt ........ | answer ........ | ahead: guesses, of one row alone
    counted    once each, when a row first asks
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int64]
_FEWEST = 64


class TokenCounts:
    """Of the tokens from one place on."""

    __slots__ = ("_counts", "_ids", "_num_seen", "_place")

    def __init__(self, first: int) -> None:
        self._num_seen = first
        self._place: dict[int, int] = {}
        self._ids = np.empty(0, dtype=np.int64)
        self._counts = np.empty(0, dtype=np.int64)

    def of(self, token_ids: Sequence[int], ahead: Sequence[int] = ()) -> tuple[_Ints, _Ints]:
        """(ids, counts), each id once, of a text that has only grown since the last call, and of
        guesses that follow it. To be read before the next call."""
        self._catch_up(token_ids)
        num_known = len(self._place)
        ids, counts = self._ids[:num_known], self._counts[:num_known]
        if not ahead:
            return ids, counts
        places = {token: i for i, token in enumerate(self._new(ahead), num_known)}
        ids = np.concatenate((ids, np.fromiter(places, np.int64)))
        counts = np.concatenate((counts, np.zeros(len(places), dtype=np.int64)))
        for token in ahead:
            counts[places[token] if token in places else self._place[token]] += 1
        return ids, counts

    def _catch_up(self, token_ids: Sequence[int]) -> None:
        if self._place:
            for token in islice(token_ids, self._num_seen, None):
                self._add(token)
        elif len(token_ids) > self._num_seen:
            fresh = np.array(token_ids[self._num_seen :], dtype=np.int64)
            self._ids, self._counts = np.unique(fresh, return_counts=True)
            self._place = {token: i for i, token in enumerate(self._ids.tolist())}
        self._num_seen = max(self._num_seen, len(token_ids))

    def _add(self, token: int) -> None:
        place = self._place.setdefault(token, len(self._place))
        if place == len(self._ids):
            room = np.zeros(max(_FEWEST, place), dtype=np.int64)
            self._ids = np.concatenate((self._ids, room))
            self._counts = np.concatenate((self._counts, room))
        self._ids[place] = token
        self._counts[place] += 1

    def _new(self, tokens: Sequence[int]) -> list[int]:
        return [token for token in dict.fromkeys(tokens) if token not in self._place]


class SeenTokens:
    """Of one sequence; nothing is counted before a row asks."""

    __slots__ = ("_answer", "_num_prompt", "_text")

    def __init__(self, num_prompt: int) -> None:
        self._num_prompt = num_prompt
        self._text: TokenCounts | None = None
        self._answer: TokenCounts | None = None

    @property
    def text(self) -> TokenCounts:
        """Of the prompt and the answer."""
        if self._text is None:
            self._text = TokenCounts(0)
        return self._text

    @property
    def answer(self) -> TokenCounts:
        """Of the answer alone."""
        if self._answer is None:
            self._answer = TokenCounts(self._num_prompt)
        return self._answer
