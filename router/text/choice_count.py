"""How many tokens of one choice count: counted here, and asked for everywhere else.

sent -> gave(n), before the source hands them on -> read -> taken back what a stop string leaves
                                                         -> stopped: enough of this choice
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


class ChoiceCount:
    """Made by whoever reads a choice; its source counts, its reader takes back and stops."""

    __slots__ = ("_listener", "_num_tokens", "_stopped", "is_sent", "num_searched_tokens")

    def __init__(self) -> None:
        self._num_tokens = 0
        self.num_searched_tokens = 0
        """Of a beam search, with its first choice: what all of its beams have got, told or not."""
        self._stopped = False
        self.is_sent = False
        """A worker has its request, or has had it."""
        self._listener: Callable[[], None] = lambda: None

    @property
    def num_tokens(self) -> int:
        """Tokens that count so far."""
        return self._num_tokens

    def listen(self, listener: Callable[[], None]) -> None:
        """`listener` is called when the reader stops the choice; the last listener counts."""
        self._listener = listener

    def gave(self, num_tokens: int) -> None:
        """So many more are about to be read."""
        self._num_tokens += num_tokens

    def take_back(self, num_tokens: int) -> None:
        """The last `num_tokens` of those given do not count."""
        assert num_tokens <= self._num_tokens, "more is taken back than was given"
        self._num_tokens -= num_tokens

    def stop(self) -> None:
        """The reader has seen enough, and the source hears of it; idempotent."""
        if not self._stopped:
            self._stopped = True
            self._listener()


def new_counts(num_choices: int) -> list[ChoiceCount]:
    """Of a request that begins."""
    return [ChoiceCount() for _ in range(num_choices)]


def num_tokens_of(counts: Sequence[ChoiceCount]) -> int:
    """Over all choices."""
    return sum(count.num_tokens for count in counts)
