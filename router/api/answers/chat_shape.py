"""Answers of /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from router.api.answers.bodies import (
    ChatChoice,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprob,
    ChatLogprobs,
    Message,
    PromptLogprobs,
    TopLogprob,
)
from router.api.answers.prompt_scores import prompt_logprobs
from router.api.answers.shape import GatheredChoice
from router.front.events import ScoredPrompt
from router.text.choice import ShownToken, TextDelta
from router.text.logprobs import ScoredToken, score
from router.text.tokenizer import Tokenizer


class ChatShape:
    """`logprobs`: whether the answer's tokens are told; `prompt_logprobs`: None, or how many
    candidates for each token of the prompt."""

    object_name = "chat.completion"
    chunk_object_name = "chat.completion.chunk"

    def __init__(
        self, tokenizer: Tokenizer, *, logprobs: bool, prompt_logprobs: int | None
    ) -> None:
        self._tokenizer = tokenizer
        self._has_logprobs = logprobs
        self._num_prompt_logprobs = prompt_logprobs
        self.prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET

    async def take_prompt(self, prompt: int, scored: ScoredPrompt) -> None:
        """See AnswerShape."""
        if self._num_prompt_logprobs is not None:
            count = self._num_prompt_logprobs
            self.prompt_logprobs = await prompt_logprobs(scored, self._tokenizer, count)

    def chunk(self, index: int, delta: TextDelta, *, first: bool) -> ChatChunkChoice:
        """The role comes with the first piece."""
        content = delta.text if delta.text or first else None
        return ChatChunkChoice(
            index,
            ChatDelta("assistant" if first else None, content),
            self._logprobs(delta.tokens),
            delta.finish_reason,
        )

    def whole(self, index: int, gathered: GatheredChoice) -> ChatChoice:
        """The message and why it ended."""
        message = Message("".join(gathered.texts))
        reason = str(gathered.finish_reason)
        return ChatChoice(index, message, self._logprobs(gathered.tokens), reason)

    def _logprobs(self, tokens: Sequence[ShownToken]) -> ChatLogprobs | None:
        if not self._has_logprobs:
            return None
        return ChatLogprobs([_logprob(item) for item in score(tokens, self._tokenizer)])


def _logprob(item: ScoredToken) -> ChatLogprob:
    top = [TopLogprob(other.text, other.logprob, list(other.raw)) for other in item.top]
    return ChatLogprob(item.chosen.text, item.chosen.logprob, list(item.chosen.raw), top)
