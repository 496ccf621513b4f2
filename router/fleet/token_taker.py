"""Who takes tokens in the moment that they are handed on, in place of a task that waits for them.

    what has come, and a task waits for it -> the taker is ready -> taken, and the task sleeps on
                                                 '- it is not ---> the task is woken, and reads

A task's turn goes from the loop through fifteen frames of awaits and back: 7 of the 42 us of a
core that a token took where each of 64 streams got one every 10 ms (2-core machine, busy).
"""

from __future__ import annotations

from typing import Protocol

from router.fleet.unread import ChoiceTokens


class TokenTaker(Protocol):
    """Of one request. Called from the event loop, while the request's task waits for what comes
    next; what it does should take a few microseconds a token."""

    def is_ready(self) -> bool:
        """Asked before each `take`: whether it can, now and without waiting."""
        ...

    def take(self, tokens: ChoiceTokens) -> None:
        """The next ones. What it raises is raised from the task's wait, as a TakerFault."""
        ...


class TakerFault(Exception):
    """What a taker has raised: no fault of whoever sent the tokens."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause
