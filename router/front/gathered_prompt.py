"""The scores of a prompt, gathered until its first token is there."""

from __future__ import annotations

from cluster.errors import InternalError
from cluster.generation import PromptToken
from router.dispatch.stream import PromptTokens, RoutedRequest
from router.front.events import ScoredPrompt


class GatheredPrompt:
    """Of one request; stays empty where nobody asked."""

    def __init__(self, request: RoutedRequest) -> None:
        self._token_ids = request.token_ids
        self._is_wanted = request.sampling.prompt_logprobs is not None
        self._scores: list[PromptToken] = []

    def take(self, event: PromptTokens) -> None:
        """The next ones; a request that was sent again begins again. Raises InternalError for a
        gap."""
        place = event.first_index - 1
        if not 0 <= place <= len(self._scores):
            raise InternalError(f"{len(self._scores)} prompt tokens are scored, then no. {place}")
        self._scores[place:] = event.tokens

    def whole(self) -> ScoredPrompt | None:
        """Once, when the first token is there; None when there is nothing to tell (any more).

        Raises InternalError when scores are missing.
        """
        if not self._is_wanted:
            return None
        self._is_wanted = False
        missing = len(self._token_ids) - 1 - len(self._scores)
        if missing:
            raise InternalError(f"the decode worker left {missing} prompt tokens without a score")
        return ScoredPrompt(self._token_ids, self._scores)
