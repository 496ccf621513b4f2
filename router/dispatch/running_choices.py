"""The choices of a request that runs: which are over, and by whose word.

open --the worker's finish reason | the reader's stop--> over
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import msgspec

from cluster.generation import BegunChoice, FinishReason, Timing, Usage
from router.dispatch.stream import ChoiceTokens
from router.text.choice_count import ChoiceCount, num_tokens_of


class ChoiceRunner(Protocol):
    """Where the choices run: RunningRequest, or the scripted source of the front's tests."""

    def finish(self, choice: int, *, is_last: bool) -> None:
        """The reader has seen enough of a choice; `is_last`: and all others are over."""


class RunningChoices:
    """One per request; a request that is sent again keeps it. What is relayed is told to the
    choices' counts, and kept: with it another worker can go on."""

    def __init__(self, counts: Sequence[ChoiceCount], begun: Sequence[BegunChoice] = ()) -> None:
        """`begun`: of an answer that goes on, the choices that are not over; empty: it begins."""
        self._counts = counts
        self._token_ids = [array("I") for _ in counts]
        self._open = {item.choice for item in begun} or set(range(len(counts)))
        for item in begun:
            self._token_ids[item.choice].extend(item.token_ids)
        self._reasons: list[FinishReason | None] = [None for _ in counts]
        self._runner: ChoiceRunner | None = None
        for choice, count in enumerate(counts):
            count.listen(partial(self._stop, choice))

    @property
    def are_over(self) -> bool:
        """True when no choice goes on."""
        return not self._open

    @property
    def have_begun(self) -> bool:
        """True once a token was relayed."""
        return any(self._token_ids)

    @property
    def begun(self) -> list[BegunChoice]:
        """Those that go on, with all that was relayed of them."""
        return [BegunChoice(c, self._token_ids[c].tolist()) for c in sorted(self._open)]

    @property
    def longest_begun_tokens(self) -> int:
        """Relayed of the longest choice that goes on."""
        return max((len(self._token_ids[choice]) for choice in self._open), default=0)

    @property
    def reasons(self) -> list[FinishReason]:
        """Why those that are over ended, in their order; not of those that ended before it went
        on."""
        return [reason for reason in self._reasons if reason is not None]

    @property
    def num_relayed_tokens(self) -> int:
        """Over all choices, counted or not."""
        return sum(map(len, self._token_ids))

    @property
    def num_tokens(self) -> int:
        """Tokens that count, over all choices."""
        return num_tokens_of(self._counts)

    @property
    def longest_tokens(self) -> int:
        """Tokens that count of the longest choice."""
        return max(count.num_tokens for count in self._counts)

    def searched(self, num_tokens: int) -> int:
        """So many tokens have the beams of a search; returns how many of them are new. What is done
        over, by another worker, is counted once."""
        count = self._counts[0]
        num_new = max(0, num_tokens - count.num_searched_tokens)
        count.num_searched_tokens += num_new
        return num_new

    def run_by(self, runner: ChoiceRunner) -> None:
        """From now on stops go to `runner`, which has the request."""
        self._runner = runner
        for count in self._counts:
            count.is_sent = True

    def take(self, event: ChoiceTokens) -> bool:
        """Has what the worker sent counted; False when it is for a choice that is over."""
        choice, tokens = event.choice, event.tokens
        if choice not in self._open:
            return not 0 <= choice < len(self._counts)  # the reader says what is wrong
        self._counts[choice].gave(len(tokens))
        if len(tokens) == 1:  # as nearly always
            self._token_ids[choice].append(tokens[0].token_id)
        else:
            self._token_ids[choice].extend([token.token_id for token in tokens])
        if event.finish_reason is not None:
            self._open.discard(choice)
            self._reasons[choice] = event.finish_reason
        return True

    def summed_up(self, told: tuple[Usage, Timing]) -> tuple[Usage, Timing]:
        """The worker's last word, without the tokens that do not count."""
        usage, timing = told
        if usage.completion_tokens != (num_tokens := self.num_tokens):
            usage = msgspec.structs.replace(usage, completion_tokens=num_tokens)
        return usage, timing

    def _stop(self, choice: int) -> None:
        if choice in self._open and self._runner is not None:
            self._open.discard(choice)
            self._reasons[choice] = FinishReason.STOP
            self._runner.finish(choice, is_last=not self._open)
