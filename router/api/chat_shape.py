"""Answers of /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence

from router.api.answer_shape import GatheredChoice
from router.api.answers import (
    ChatChoice,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprob,
    ChatLogprobs,
    Message,
    TopLogprob,
)
from router.text.choice import ShownToken, TextDelta
from router.text.logprobs import ScoredToken, score
from router.text.tokenizer import Tokenizer


class ChatShape:
    """`tokenizer` is given when logprobs were asked for."""

    object_name = "chat.completion"
    chunk_object_name = "chat.completion.chunk"

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer

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
        if self._tokenizer is None:
            return None
        return ChatLogprobs([_logprob(item) for item in score(tokens, self._tokenizer)])


def _logprob(item: ScoredToken) -> ChatLogprob:
    top = [TopLogprob(other.text, other.logprob, list(other.raw)) for other in item.top]
    return ChatLogprob(item.chosen.text, item.chosen.logprob, list(item.chosen.raw), top)
