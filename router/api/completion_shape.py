"""Answers of /v1/completions."""

from __future__ import annotations

from collections.abc import Sequence

from router.api.answer_shape import GatheredChoice
from router.api.answers import CompletionChoice, CompletionLogprobs
from router.text.choice import ShownToken, TextDelta
from router.text.logprobs import ScoredToken, score
from router.text.tokenizer import Tokenizer


class CompletionShape:
    """`tokenizer` is given when logprobs were asked for; `echoes` has the text of every prompt
    when the prompt stands before the answer."""

    object_name = "text_completion"
    chunk_object_name = "text_completion"

    def __init__(
        self, tokenizer: Tokenizer | None, *, echoes: Sequence[str], num_choices: int
    ) -> None:
        self._tokenizer = tokenizer
        self._echoes = echoes
        self._num_choices = num_choices

    def chunk(self, index: int, delta: TextDelta, *, first: bool) -> CompletionChoice:
        """The echo comes with the first piece."""
        text = self._echo(index) + delta.text if first else delta.text
        return CompletionChoice(index, text, self._logprobs(delta.tokens), delta.finish_reason)

    def whole(self, index: int, gathered: GatheredChoice) -> CompletionChoice:
        """The text and why it ended."""
        text = self._echo(index) + "".join(gathered.texts)
        reason = str(gathered.finish_reason)
        return CompletionChoice(index, text, self._logprobs(gathered.tokens), reason)

    def _echo(self, index: int) -> str:
        return self._echoes[index // self._num_choices] if self._echoes else ""

    def _logprobs(self, tokens: Sequence[ShownToken]) -> CompletionLogprobs | None:
        if self._tokenizer is None:
            return None
        scored = score(tokens, self._tokenizer)
        return CompletionLogprobs(
            tokens=[item.chosen.text for item in scored],
            token_logprobs=[item.chosen.logprob for item in scored],
            top_logprobs=[_top(item) for item in scored],
            text_offset=[item.text_offset_chars for item in scored],
        )


def _top(item: ScoredToken) -> dict[str, float]:
    """By text; of several tokens with one text the likeliest counts."""
    return {other.text: other.logprob for other in reversed(item.top)}
