"""A grammar as far as one sequence has come in it: a function of its tokens, and of nothing else.

So what was preempted, begun elsewhere or given a first token by a prefill worker needs no more than
its tokens: those that the matcher has not seen are fed before the next mask, each once.

    known tokens -> outlook: the mask of the next token; while that has one bit, the token is forced
                    and fed ahead of time, and the mask behind it is there, too
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from llguidance import LLMatcher

from cluster.errors import GrammarFailed
from cluster.models.text.grammars import in_short

if TYPE_CHECKING:
    from engine.sampling.grammars.compiler import CompiledGrammar


class GrammarOutlook:
    """What may come after so many tokens of an answer."""

    __slots__ = ("forced", "masks", "num_known")

    def __init__(self, num_known: int, forced: list[int], masks: list[torch.Tensor]) -> None:
        """`masks`: int32 [num_words] of the next token, and behind each of `forced` that does not
        end the answer; all but the last of them have one bit."""
        self.num_known = num_known
        self.forced = forced
        self.masks = masks

    def reaches(self, num_known: int) -> bool:
        """Whether the mask after so many tokens is among them."""
        return 0 <= num_known - self.num_known < len(self.masks)

    def masks_at(self, num_known: int) -> list[torch.Tensor]:
        """Those from there on."""
        return self.masks[num_known - self.num_known :]

    def forced_at(self, num_known: int) -> list[int]:
        """The tokens that come next, for sure."""
        return self.forced[num_known - self.num_known :]


class Constraint:
    """Used by one thread at a time: the maker's of masks while a row of it is under way."""

    __slots__ = (
        "_ahead",
        "error",
        "grammar",
        "is_watched",
        "late_at",
        "matcher",
        "may_draft",
        "num_known",
        "outlook",
        "spent_s",
    )

    def __init__(self, matcher: LLMatcher, grammar: CompiledGrammar | None = None) -> None:
        """`matcher` at its beginning; nobody else's. `grammar`: of which it is one."""
        self.matcher = matcher
        self.grammar = grammar
        self.num_known = 0
        """Tokens of the answer that it was told of."""
        self._ahead: list[int] = []
        """Tokens that were fed behind these: forced ones."""
        self.outlook: GrammarOutlook | None = None
        """The last that was found."""
        self.is_watched = grammar is not None and grammar.is_dear
        """Its masks are made by themselves, and timed."""
        self.late_at = -1
        """Tokens of the answer, when a draft behind them was not walked in time: there is no other
        draft until there are more."""
        self.may_draft = True
        """False: a draft of this answer could not be walked; there are no more."""
        self.spent_s = 0.0
        """Of a core, on masks that were timed."""
        self.error: GrammarFailed | None = None
        """Why it cannot go on; it stays."""

    @classmethod
    def anew(cls, other: Constraint) -> Constraint:
        """At the beginning again, after a draft that could not be walked."""
        assert other.grammar is not None, "what an engine follows is of a grammar"
        made = cls(other.grammar.start(), other.grammar)
        made.may_draft, made.spent_s = False, other.spent_s
        return made

    @property
    def num_fed(self) -> int:
        """Tokens that the matcher has seen."""
        return self.num_known + len(self._ahead)

    def has_outlook(self, num_known: int) -> bool:
        """Whether what may come after so many tokens is known."""
        outlook = self.outlook
        return outlook is not None and 0 <= num_known - outlook.num_known < len(outlook.masks)

    def catch_up(self, new: Sequence[int]) -> None:
        """Tells it the answer's next tokens; the matcher is where they end then. What was fed
        already is not fed again."""
        if self.error is not None:
            return
        if len(new) == 1 and not self._ahead:  # as nearly always
            self.num_known += 1
            if not self.matcher.consume_token(new[0]):
                self.check()
            return
        ahead, self._ahead = self._ahead, []
        self.num_known += len(new)
        num_same = _num_same(ahead, new)
        if num_same < len(ahead):
            self.matcher.rollback(len(ahead) - num_same)
        rest = list(new[num_same:])
        if rest and not self.matcher.consume_tokens(rest):
            self.check()

    def feed_ahead(self, token_id: int) -> None:
        """A token that is sure to come."""
        self._ahead.append(token_id)
        if not self.matcher.consume_token(token_id):
            self.check()

    def check(self) -> None:
        """After a call that may have failed."""
        if self.error is None and self.matcher.is_error():
            words = in_short(self.matcher.get_error())
            self.fail(f"the answer's grammar cannot be followed further: {words}")

    def fail(self, message: str) -> None:
        """It does not go on."""
        if self.error is None:
            self.error = GrammarFailed(message)


def _num_same(first: Sequence[int], second: Sequence[int]) -> int:
    """Tokens at the beginning of both."""
    for num_same, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return num_same
    return min(len(first), len(second))
