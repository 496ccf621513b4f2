"""A grammar as far as one sequence has come in it: a function of its tokens, and of nothing else.

So what was preempted, begun elsewhere or given a first token by a prefill worker needs no more than
its tokens: those that the matcher has not seen are fed before the next mask, each once.
"""

from __future__ import annotations

from collections.abc import Sequence

from llguidance import LLMatcher

from cluster.errors import GrammarFailed
from cluster.models.text.grammars import in_short


class Constraint:
    """Used by one thread at a time."""

    __slots__ = ("error", "matcher", "num_fed")

    def __init__(self, matcher: LLMatcher) -> None:
        """`matcher` at its beginning; nobody else's."""
        self.matcher = matcher
        self.num_fed = 0
        self.error: GrammarFailed | None = None
        """Why it cannot go on; it stays."""

    def catch_up(self, token_ids: Sequence[int], num_prompt: int) -> None:
        """Feeds what is new of an answer's tokens, which follow the prompt's."""
        new = list(token_ids[num_prompt + self.num_fed :])
        if new and self.error is None:
            self.num_fed += len(new)
            if not self.matcher.consume_tokens(new):
                self.check()

    def check(self) -> None:
        """After a call that may have failed."""
        if self.error is None and self.matcher.is_error():
            words = in_short(self.matcher.get_error())
            self.fail(f"the answer's grammar cannot be followed further: {words}")

    def fail(self, message: str) -> None:
        """It does not go on."""
        self.error = GrammarFailed(message)
