"""Tokens of a request on their way past its task: counted by its journey, then its reader's."""

from __future__ import annotations

from router.dispatch.journey import Journey
from router.fleet.token_taker import TokenTaker
from router.fleet.unread import ChoiceTokens


class HandingOn(TokenTaker):
    """Of one request, for whichever worker has it."""

    def __init__(self, journey: Journey, reader: TokenTaker) -> None:
        self._journey = journey
        self._reader = reader
        self.is_ready = reader.is_ready  # type: ignore[method-assign]  # asked with every token

    def is_ready(self) -> bool:
        """See TokenTaker."""
        return self._reader.is_ready()

    def take(self, tokens: ChoiceTokens) -> None:
        """See TokenTaker."""
        if self._journey.take(tokens):
            self._reader.take(tokens)
