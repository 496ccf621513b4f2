"""Answers of /v1/completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from router.api.answers.bodies import CompletionChoice, CompletionLogprobs, PromptLogprobs
from router.api.answers.prompt_scores import echo_logprobs, prompt_logprobs
from router.api.answers.shape import GatheredChoice
from router.front.events import ScoredPrompt
from router.text.choice import ShownToken, TextDelta
from router.text.logprobs import score, top_by_text
from router.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionWishes:
    """What the client asked of the answer."""

    logprobs: int | None
    prompt_logprobs: int | None
    num_choices: int
    """Per prompt."""


class CompletionShape:
    """`echoes` has the text of every prompt when the prompt stands before the answer."""

    object_name = "text_completion"
    chunk_object_name = "text_completion"
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET
    """Each choice has its own prompt's."""

    def __init__(
        self, tokenizer: Tokenizer, wishes: CompletionWishes, *, echoes: Sequence[str]
    ) -> None:
        self._tokenizer = tokenizer
        self._wishes = wishes
        self._echoes = echoes
        self._echoed: dict[int, CompletionLogprobs] = {}
        self._prompts: dict[int, PromptLogprobs] = {}

    async def take_prompt(self, prompt: int, scored: ScoredPrompt) -> None:
        """See AnswerShape."""
        wishes = self._wishes
        if self._echoes and wishes.logprobs is not None:
            self._echoed[prompt] = await echo_logprobs(scored, self._tokenizer, wishes.logprobs)
        if wishes.prompt_logprobs is not None:
            count = wishes.prompt_logprobs
            self._prompts[prompt] = await prompt_logprobs(scored, self._tokenizer, count)

    def chunk(self, index: int, delta: TextDelta, *, first: bool) -> CompletionChoice:
        """The echo comes with the first piece."""
        logprobs = self._logprobs(index, delta.tokens, first=first)
        text = self._echo(index) + delta.text if first else delta.text
        return CompletionChoice(index, text, logprobs, delta.finish_reason)

    def whole(self, index: int, gathered: GatheredChoice) -> CompletionChoice:
        """The text and why it ended."""
        text = self._echo(index) + "".join(gathered.texts)
        logprobs = self._logprobs(index, gathered.tokens, first=True)
        told = self._prompts.get(index // self._wishes.num_choices, msgspec.UNSET)
        return CompletionChoice(index, text, logprobs, str(gathered.finish_reason), told)

    def _echo(self, index: int) -> str:
        return self._echoes[index // self._wishes.num_choices] if self._echoes else ""

    def _logprobs(
        self, index: int, tokens: Sequence[ShownToken], *, first: bool
    ) -> CompletionLogprobs | None:
        if self._wishes.logprobs is None:
            return None
        echoed = self._echoed.get(index // self._wishes.num_choices) if first else None
        told = CompletionLogprobs([], [], [], []) if echoed is None else _copied(echoed)
        before_chars = len(self._echo(index))
        # beside an echo the token that ended the choice counts too: readers go by the number
        for item in score(tokens, self._tokenizer, unshown=bool(self._echoes)):
            told.tokens.append(item.chosen.text)
            told.token_logprobs.append(item.chosen.logprob)
            told.top_logprobs.append(top_by_text(item.chosen, item.top))
            told.text_offset.append(before_chars + item.text_offset_chars)
        return told


def _copied(told: CompletionLogprobs) -> CompletionLogprobs:
    """Lists of its own: the choices of a prompt share what stands before them."""
    return CompletionLogprobs(
        [*told.tokens], [*told.token_logprobs], [*told.top_logprobs], [*told.text_offset]
    )
