"""What is looked up in, taken in: so much a step, and a prediction once for all its choices."""

from __future__ import annotations

from collections.abc import Sequence

from engine.step.drafting.ngram_index import PART_TOKENS, SEPARATOR, NgramIndex

TURN_TOKENS = 2048
"""Of all long texts of an engine, in one step: half a millisecond. They are taken in over several
steps, and nothing is guessed of one before."""


class TextTurns:
    """Of one engine."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left: int | None = None
        """None: nobody says when steps begin, and each call is one."""

    def begin(self) -> None:
        """A step begins."""
        self._left = TURN_TOKENS

    def take(self, num_tokens: int) -> int:
        """So many of these are taken in now; the others have to wait for another step."""
        if self._left is None:
            return min(num_tokens, TURN_TOKENS)
        taken = min(num_tokens, self._left)
        self._left -= taken
        return taken


class PredictedText:
    """A client's prediction, of whose index each choice of the request has a copy."""

    __slots__ = ("__weakref__", "_index", "_turns", "_unread", "prediction")

    def __init__(self, prediction: Sequence[int], turns: TextTurns) -> None:
        """`prediction`: its first PART_TOKENS count, one at least."""
        self.prediction = prediction
        self._turns = turns
        self._index = NgramIndex()
        self._unread: Sequence[int] = [*prediction[:PART_TOKENS], SEPARATOR]

    @property
    def num_tokens(self) -> int:
        """That count."""
        return min(len(self.prediction), PART_TOKENS)

    def index(self) -> NgramIndex | None:
        """A new one, with what separates it from what follows; None: not in this step."""
        if num_taken := self._turns.take(len(self._unread)):
            self._index.add_many(self._unread[:num_taken])
            self._unread = self._unread[num_taken:]
        return None if self._unread else self._index.copy()
