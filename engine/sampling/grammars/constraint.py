"""A grammar as far as one sequence has come in it: a function of its tokens, and of nothing else.

So what was preempted, begun elsewhere or given a first token by a prefill worker needs no more than
its tokens: those that the matcher has not seen are fed before the next mask, each once.

    known tokens -> outlook: the mask of the next token; while that has one bit, the token is forced
                    and fed ahead of time, and the mask behind it is there, too

A matcher shares the states of its lexer with those of all answers of the same compile, so what it
fails of may be theirs: the answer then begins once more, fed with its tokens, with the heir that is
there for all of them, and where others have followed that too, with a compile of its own. What
fails there, where no guess was walked, is its own, and ends it.

    shared -> spent -> heir -> ends, where no other answer has followed it
                         '-> spent -> own -> ends
    heir or own, alone, and walked -> spent -> own, without drafts
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from llguidance import LLMatcher

from cluster.errors import SplitserveError
from cluster.models.text.grammars import failure_in_words
from engine.sampling.grammars.own_compiles import MAX_OWN_BYTES, OwnShare
from kernels.token_mask import TokenMask

if TYPE_CHECKING:
    from engine.sampling.grammars.compiled_grammar import CompiledGrammar


class GrammarOutlook(msgspec.Struct, eq=False):
    """What may come after so many tokens of an answer."""

    num_known: int
    forced: Sequence[int]
    masks: Sequence[TokenMask]
    """Of the next token, and behind each of `forced` that does not end the answer; all but the last
    of them have one bit."""

    def reaches(self, num_known: int) -> bool:
        """Whether the mask after so many tokens is among them."""
        return 0 <= num_known - self.num_known < len(self.masks)

    def masks_at(self, num_known: int) -> Sequence[TokenMask]:
        """Those from there on."""
        return self.masks[num_known - self.num_known :]

    def forced_at(self, num_known: int) -> list[int]:
        """The tokens that come next, for sure."""
        return list(self.forced[num_known - self.num_known :])


class Constraint:
    """Used by one thread at a time: the maker's of masks while a row of it is under way."""

    __slots__ = (
        "_ahead",
        "_is_own",
        "_known",
        "_last_mask",
        "_num_replayed",
        "_share",
        "_spare_mask",
        "_was_walked",
        "failure",
        "grammar",
        "is_spent",
        "is_watched",
        "late_at",
        "matcher",
        "may_draft",
        "num_known",
        "outlook",
        "replayed_s",
        "spent_s",
    )

    def __init__(self, matcher: LLMatcher, grammar: CompiledGrammar | None = None) -> None:
        """`matcher` at its beginning; nobody else's. `grammar`: of which it is one."""
        self.matcher = matcher
        self.grammar = grammar
        self.num_known = 0
        """Tokens of the answer that it was told of."""
        self._known: list[int] = []
        """They themselves."""
        self._is_own = False
        """The matcher is of a compile that no other answer has."""
        self._share: OwnShare | None = None
        """Of such a compile, or of an heir; None: others have it as well."""
        self._num_replayed = 0
        """Tokens that the compile was fed with at its beginning, without masks."""
        self._was_walked = False
        """It has been led over guesses, whose states stay."""
        self.is_spent = False
        """The matcher is of no use any more: `begin_again` is to be called, by a thread that has
        the time for it."""
        self._ahead: list[int] = []
        """Tokens that were fed behind these: forced ones."""
        self.outlook: GrammarOutlook | None = None
        """The last that was found."""
        self._last_mask: TokenMask | None = None
        self._spare_mask: TokenMask | None = None
        """Written by turns."""
        self.is_watched = grammar is not None and grammar.is_dear
        """Its masks are made by themselves, and timed."""
        self.late_at: int | None = None
        """Tokens of the answer, when a draft behind them was not walked in time: there is no other
        draft until there are more. None: all were."""
        self.may_draft = True
        """False: a draft of this answer could not be walked; there are no more."""
        self.spent_s = 0.0
        """Of a core, on masks that were timed."""
        self.replayed_s = 0.0
        """Of a core, on tokens that were fed once more."""
        self.failure: str | None = None
        """Why it cannot go on; it stays."""

    @classmethod
    def of(cls, grammar: CompiledGrammar) -> Constraint:
        """At the beginning of an answer."""
        made = cls(grammar.start(), grammar)
        if grammar.is_spent:
            made._spend()
        return made

    @classmethod
    def anew(cls, other: Constraint) -> Constraint:
        """At the beginning again, after a draft that could not be walked."""
        made = cls(other.matcher, other.grammar)
        made.may_draft, made.spent_s, made.outlook = False, other.spent_s, other.outlook
        made._is_own, made._share = other._is_own, other._share
        made._spend()
        return made

    def begin_again(self, num_new: int = 0) -> list[int]:
        """Of one that is spent: with another compile, which may take as long as one does. Returns
        the tokens that it knew: it is to be told of them again, and of `num_new` behind them."""
        known, self._known, self._ahead = self._known, [], []
        self.num_known, self.replayed_s = 0, 0.0
        self._was_walked, self.is_spent = False, False
        try:
            self._follow_another(len(known) + num_new)
        except SplitserveError as error:
            self.fail(f"the answer's grammar could not be compiled again: {error.message}")
        return known

    def _follow_another(self, num_replayed: int) -> None:
        assert self.grammar is not None, "what an engine follows is of a grammar"
        self._share = None  # what it had before is no longer held
        self._num_replayed = num_replayed
        if heir := self.grammar.heir():
            self.grammar = heir
            self.matcher, self._share = heir.join(num_replayed)
            return
        self._is_own, self._share = True, self.grammar.take_share(num_replayed)
        self._check_share(self._share)
        if self.failure is None:
            self.matcher = self.grammar.anew()

    def _check_share(self, share: OwnShare) -> None:
        share.num_tokens = max(0, self.num_known - self._num_replayed)
        if self.grammar is not None and self.grammar.is_too_large(share):
            self.fail(
                f"answers that take so many states of their grammars' lexers have at most "
                f"{MAX_OWN_BYTES >> 20} MiB together here, of which this one took most; allow "
                "shorter strings, or ask again when fewer of them run"
            )

    @property
    def num_fed(self) -> int:
        """Tokens that the matcher has seen."""
        return self.num_known + len(self._ahead)

    def catch_up(self, new: list[int]) -> None:
        """Tells it the answer's next tokens, and empties the list; the matcher is where they end
        then. What was fed already is not fed again."""
        if self.failure is not None:
            return
        self._known += new
        self.num_known += len(new)
        if not self._is_own and self.grammar is not None:
            self.grammar.num_followed += len(new)
        if self._share is not None:
            self._check_share(self._share)
        if len(new) == 1 and not self._ahead:  # as nearly always
            if not self.matcher.consume_token(new.pop()):
                self.check()
            return
        ahead, self._ahead = self._ahead, []
        num_same = _num_same(ahead, new)
        if num_same < len(ahead):
            self.matcher.rollback(len(ahead) - num_same)
        rest = new[num_same:]
        new.clear()
        if rest and not self.matcher.consume_tokens(rest):
            self.check()

    def next_mask(self, num_words: int) -> TokenMask:
        """To be written with what may come next: the one before the last, once more. Whoever looks
        at a mask has done so when the token after it is known."""
        spare = self._spare_mask
        if spare is None or spare.num_words != num_words:
            spare = TokenMask.blank(num_words)
        self._spare_mask, self._last_mask = self._last_mask, spare
        return spare

    def feed_ahead(self, token_id: int) -> None:
        """A token that is sure to come."""
        self._ahead.append(token_id)
        if not self.matcher.consume_token(token_id):
            self.check()

    def note_walk(self) -> None:
        """The matcher is about to be led over guesses."""
        self._was_walked = True

    def check(self) -> None:
        """After a call that may have failed."""
        if self.failure is not None or self.is_spent or not self.matcher.is_error():
            return
        grammar, cause = self.grammar, self.matcher.get_error()
        is_alone = grammar is None or self._is_own or grammar.is_of_one
        if grammar is None or (is_alone and not self._was_walked):
            self.fail(failure_in_words(cause))
            return
        self.may_draft &= not is_alone
        if not self._is_own:
            grammar.spend(cause)
        self._spend()

    def fail(self, message: str) -> None:
        """It does not go on."""
        if self.failure is None:
            self.failure = message
        self._share = None

    def _spend(self) -> None:
        self.is_spent = self.is_watched = True


def _num_same(first: Sequence[int], second: Sequence[int]) -> int:
    """Tokens at the beginning of both."""
    for num_same, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return num_same
    return min(len(first), len(second))
