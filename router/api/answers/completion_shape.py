"""Answers of /v1/completions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cluster.generation import FinishReason
from router.api.answers.bodies import (
    CompletionChoice,
    CompletionLogprobs,
    CompletionLogprobsInOne,
    PromptLogprobs,
)
from router.api.answers.json_list import JsonList
from router.api.answers.prompt_scores import echo_logprobs, prompt_logprobs
from router.front.events import ScoredPrompt
from router.text.choice import ShownToken, TextDelta
from router.text.logprobs import score, top_by_text
from router.text.tokenizer import Tokenizer
from router.tools.thought_tokens import ThoughtTokens


class CompletionWishes(msgspec.Struct, frozen=True, kw_only=True):
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
    thought_tokens: ThoughtTokens | None = None

    def __init__(
        self, tokenizer: Tokenizer, wishes: CompletionWishes, *, echoes: Sequence[str]
    ) -> None:
        self._tokenizer = tokenizer
        self._wishes = wishes
        self._echoes = echoes
        self._echoed: dict[int, CompletionLogprobs] = {}
        self._echo_lists: dict[int, _Lists] = {}
        self._prompts: dict[int, PromptLogprobs] = {}

    async def take_prompt(self, prompt: int, scored: ScoredPrompt) -> None:
        """See AnswerShape."""
        wishes = self._wishes
        if self._echoes and wishes.logprobs is not None:
            self._echoed[prompt] = await echo_logprobs(scored, self._tokenizer, wishes.logprobs)
        if wishes.prompt_logprobs is not None:
            count = wishes.prompt_logprobs
            self._prompts[prompt] = await prompt_logprobs(scored, self._tokenizer, count)

    def starts_after(self, token_ids: Sequence[int]) -> None:
        """See AnswerShape."""

    def chunk(self, index: int, delta: TextDelta, *, first: bool) -> CompletionChoice:
        """The echo comes with the first piece."""
        logprobs = None
        if self._wishes.logprobs is not None:
            logprobs = self.logprobs(index, delta.tokens)
            if first and (echoed := self._echoed.get(self._prompt_of(index))) is not None:
                logprobs = _joined(echoed, logprobs)
        text = self.echo(index) + delta.text if first else delta.text
        return CompletionChoice(index, text, logprobs, delta.finish_reason)

    def gathered(self, index: int) -> GatheredCompletion:
        """See AnswerShape."""
        return GatheredCompletion(index, self, tells_logprobs=self._wishes.logprobs is not None)

    def echo(self, index: int) -> str:
        """What stands before the text of a choice."""
        return self._echoes[self._prompt_of(index)] if self._echoes else ""

    def echo_lists(self, index: int) -> _Lists:
        """What stands before the logprobs of a choice; encoded once for all of a prompt."""
        prompt = self._prompt_of(index)
        if prompt not in self._echo_lists:
            lists = self._echo_lists[prompt] = _new_lists()
            if (echoed := self._echoed.get(prompt)) is not None:
                _extend(lists, echoed)
        return self._echo_lists[prompt]

    def prompt_logprobs_of(self, index: int) -> PromptLogprobs | msgspec.UnsetType:
        """Of the prompt of a choice, where they were asked for."""
        return self._prompts.get(self._prompt_of(index), msgspec.UNSET)

    def _prompt_of(self, index: int) -> int:
        return index // self._wishes.num_choices

    def logprobs(self, index: int, tokens: Sequence[ShownToken]) -> CompletionLogprobs:
        """New tokens of a choice in words."""
        told = CompletionLogprobs([], [], [], [])
        before_chars = len(self.echo(index))
        # beside an echo the token that ended the choice counts too: readers go by the number
        for item in score(tokens, self._tokenizer, unshown=bool(self._echoes)):
            told.tokens.append(item.chosen.text)
            told.token_logprobs.append(item.chosen.logprob)
            told.top_logprobs.append(top_by_text(item.chosen, item.top))
            told.text_offset.append(before_chars + item.text_offset_chars)
        return told


class GatheredCompletion:
    """A GatheredChoice of a completion."""

    def __init__(self, index: int, shape: CompletionShape, *, tells_logprobs: bool) -> None:
        self._index = index
        self._shape = shape
        self._texts: list[str] = []
        self._lists = _new_lists() if tells_logprobs else None
        self._finish_reason: FinishReason | None = None

    def add(self, delta: TextDelta) -> None:
        """See GatheredChoice."""
        self._texts.append(delta.text)
        self._finish_reason = delta.finish_reason
        if self._lists is not None:
            _extend(self._lists, self._shape.logprobs(self._index, delta.tokens))

    def whole(self) -> CompletionChoice:
        """The text and why it ended."""
        logprobs = None
        if self._lists is not None:
            both = zip(self._lists, self._shape.echo_lists(self._index), strict=True)
            logprobs = CompletionLogprobsInOne(*(told.after(echoed) for told, echoed in both))
        text = self._shape.echo(self._index) + "".join(self._texts)
        prompt = self._shape.prompt_logprobs_of(self._index)
        return CompletionChoice(self._index, text, logprobs, str(self._finish_reason), prompt)


_Lists = tuple[JsonList, JsonList, JsonList, JsonList]
"""Those of CompletionLogprobs, in their order."""


def _new_lists() -> _Lists:
    return JsonList(), JsonList(), JsonList(), JsonList()


def _extend(lists: _Lists, told: CompletionLogprobs) -> None:
    lists[0].extend(told.tokens)
    lists[1].extend(told.token_logprobs)
    lists[2].extend(told.top_logprobs)
    lists[3].extend(told.text_offset)


def _joined(before: CompletionLogprobs, after: CompletionLogprobs) -> CompletionLogprobs:
    """In lists of its own: the choices of a prompt share what stands before them."""
    return CompletionLogprobs(
        before.tokens + after.tokens,
        before.token_logprobs + after.token_logprobs,
        before.top_logprobs + after.top_logprobs,
        before.text_offset + after.text_offset,
    )
