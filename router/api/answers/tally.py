"""Usage over all prompts of one request, while it runs and at its end: what their counts say."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cluster.generation import Timing
from router.api.answers.bodies import CompletionTokensDetails, PromptTokensDetails, UsageBody
from router.dispatch.stream import Completed
from router.text.choice import TextDelta
from router.tools.thought_tokens import ThoughtTokens


class Tally:
    """Adds up what the pipeline tells. `timing` is the last prompt's to end."""

    def __init__(
        self,
        prompt_tokens: Sequence[int],
        thoughts: ThoughtTokens | None = None,
        *,
        is_predicted: bool = False,
    ) -> None:
        """`prompt_tokens`: the length of every prompt. `thoughts`: counted by who tells them.
        `is_predicted`: the client has said what it expects, and is told what came of it."""
        self._thoughts = thoughts
        self._prompt_tokens = sum(prompt_tokens)
        self._choice_tokens: dict[int, int] = {}
        self._untold_tokens = 0
        self._cached_tokens = 0
        self._predicted = (0, 0) if is_predicted else None
        """Tokens that were accepted and rejected."""
        self.timing = Timing()

    def count(self, index: int, delta: TextDelta) -> None:
        """Choice `index` has come so far, as its own count says."""
        self._choice_tokens[index] = delta.num_tokens

    def end(self, event: Completed) -> None:
        """One prompt is over."""
        usage = event.usage
        self._cached_tokens += usage.cached_tokens
        self._untold_tokens += event.untold_tokens
        if self._predicted is not None:
            accepted, rejected = self._predicted
            accepted += usage.accepted_prediction_tokens
            self._predicted = accepted, rejected + usage.rejected_prediction_tokens
        self.timing = event.timing

    def usage(self) -> UsageBody:
        """So far; final once every prompt is over."""
        completion_tokens = sum(self._choice_tokens.values()) + self._untold_tokens
        return UsageBody(
            self._prompt_tokens,
            completion_tokens,
            self._prompt_tokens + completion_tokens,
            PromptTokensDetails(self._cached_tokens),
            self._details(),
        )

    def _details(self) -> CompletionTokensDetails | msgspec.UnsetType:
        if self._thoughts is None and self._predicted is None:
            return msgspec.UNSET
        details = CompletionTokensDetails()
        if self._thoughts is not None:
            details.reasoning_tokens = self._thoughts.total
        if self._predicted is not None:
            accepted, rejected = self._predicted
            details.accepted_prediction_tokens = accepted
            details.rejected_prediction_tokens = rejected
        return details
