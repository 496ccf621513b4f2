"""Answers of /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cluster.generation import FinishReason
from router.api.answers.bodies import (
    ChatChoice,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprob,
    ChatLogprobs,
    ChatLogprobsInOne,
    Message,
    PromptLogprobs,
    TopLogprob,
)
from router.api.answers.json_list import JsonList
from router.api.answers.prompt_scores import prompt_logprobs
from router.api.answers.shape import GatheredChoice
from router.front.events import ScoredPrompt
from router.text.choice import ShownToken, TextDelta
from router.text.logprobs import ScoredToken, score
from router.text.tokenizer import Tokenizer
from router.tools.thought_tokens import ThoughtTokens


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

    def starts_after(self, token_ids: Sequence[int]) -> None:
        """See AnswerShape."""

    @property
    def thought_tokens(self) -> ThoughtTokens | None:
        """See AnswerShape."""
        return None

    def chunk(self, index: int, delta: TextDelta, *, first: bool) -> ChatChunkChoice | None:
        """The role comes with the first piece."""
        content = delta.text if delta.text or first else None
        return ChatChunkChoice(
            index,
            ChatDelta("assistant" if first else None, content),
            self.logprobs(delta.tokens),
            delta.finish_reason,
        )

    def gathered(self, index: int) -> GatheredChoice:
        """See AnswerShape."""
        return GatheredChat(index, self._tokenizer if self._has_logprobs else None)

    def logprobs(self, tokens: Sequence[ShownToken]) -> ChatLogprobs | None:
        """Of new tokens, where they were asked for."""
        return ChatLogprobs(_told(tokens, self._tokenizer)) if self._has_logprobs else None


class GatheredChat:
    """A GatheredChoice of a chat; without a `tokenizer` it tells no logprobs."""

    def __init__(self, index: int, tokenizer: Tokenizer | None) -> None:
        self._index = index
        self._tokenizer = tokenizer
        self._texts: list[str] = []
        self._content = JsonList()
        self._finish_reason: FinishReason | None = None

    def add(self, delta: TextDelta) -> None:
        """See GatheredChoice."""
        self._texts.append(delta.text)
        self._finish_reason = delta.finish_reason
        if self._tokenizer is not None:
            self._content.extend(_told(delta.tokens, self._tokenizer))

    def whole(self) -> ChatChoice:
        """The message and why it ended."""
        logprobs = None
        if self._tokenizer is not None:
            logprobs = ChatLogprobsInOne(self._content.after(JsonList()))
        message = Message("".join(self._texts))
        return ChatChoice(self._index, message, logprobs, str(self._finish_reason))


def _told(tokens: Sequence[ShownToken], tokenizer: Tokenizer) -> list[ChatLogprob]:
    return [_logprob(item) for item in score(tokens, tokenizer)]


def _logprob(item: ScoredToken) -> ChatLogprob:
    top = [TopLogprob(other.text, other.logprob, list(other.raw)) for other in item.top]
    return ChatLogprob(item.chosen.text, item.chosen.logprob, list(item.chosen.raw), top)
