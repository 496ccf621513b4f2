"""The choices of a request that runs: which are over, by whose word, and how many tokens count.

open --the worker's finish reason | the reader's stop--> over
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from cluster.generation import Timing, Usage
from router.dispatch.stream import ChoiceTokens, StoppedChoices


class ChoiceRunner(Protocol):
    """Where the choices run: RunningRequest, or the scripted source of the front's tests."""

    def finish(self, choice: int, *, is_last: bool) -> None:
        """The reader has seen enough of a choice; `is_last`: and all others are over."""


class RunningChoices:
    """One per request; a request that is sent again keeps it."""

    def __init__(self, num_choices: int, stopped: StoppedChoices) -> None:
        self._open = set(range(num_choices))
        self._num_relayed = dict.fromkeys(range(num_choices), 0)
        self._stopped = stopped
        self._runner: ChoiceRunner | None = None
        stopped.listen(self._stop)

    @property
    def are_over(self) -> bool:
        """True when no choice goes on."""
        return not self._open

    @property
    def num_tokens(self) -> int:
        """Tokens that count, over all choices: of a stopped one, up to its stop."""
        return sum(self._num_tokens(choice) for choice in self._num_relayed)

    @property
    def longest_tokens(self) -> int:
        """Tokens that the longest choice was given."""
        return max(self._num_relayed.values())

    def run_by(self, runner: ChoiceRunner) -> None:
        """From now on stops go to `runner`."""
        self._runner = runner

    def take(self, event: ChoiceTokens) -> bool:
        """Counts what the worker sent; False when it is for a choice that was stopped before."""
        if self._stopped.num_tokens(event.choice) is not None:
            return False
        relayed = self._num_relayed.get(event.choice, 0)
        self._num_relayed[event.choice] = relayed + len(event.tokens)
        if event.finish_reason is not None:
            self._open.discard(event.choice)
        return True

    def summed_up(self, told: tuple[Usage, Timing]) -> tuple[Usage, Timing]:
        """The worker's last word, without the tokens that it made after a stop."""
        usage, timing = told
        return replace(usage, completion_tokens=self.num_tokens), timing

    def _num_tokens(self, choice: int) -> int:
        stopped = self._stopped.num_tokens(choice)
        return self._num_relayed[choice] if stopped is None else stopped

    def _stop(self, choice: int) -> None:
        if choice in self._open and self._runner is not None:
            self._open.discard(choice)
            self._runner.finish(choice, is_last=not self._open)
