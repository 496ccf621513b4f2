"""The two shapes of an answer (chat and completion) behind one interface, and their envelope."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import msgspec

from cluster.generation import Timing
from router.api.answers.bodies import (
    Answer,
    ChatChoice,
    ChatChunkChoice,
    CompletionChoice,
    PromptLogprobs,
    UsageBody,
)
from router.front.events import ScoredPrompt
from router.text.choice import TextDelta
from router.tools.thought_tokens import ThoughtTokens

_ENCODER = msgspec.json.Encoder()
Choice = ChatChoice | ChatChunkChoice | CompletionChoice


class GatheredChoice(Protocol):
    """A choice whose deltas are collected for an answer in one piece."""

    def add(self, delta: TextDelta) -> None:
        """The next delta of this choice; its logprobs are put into words now."""
        ...

    def whole(self) -> Choice:
        """The finished choice, once: no more than the copying of what there is."""
        ...


class AnswerShape(Protocol):
    """How a choice looks. `index` counts over all prompts: prompt * n + choice."""

    object_name: str
    chunk_object_name: str
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType
    """What stands beside the choices, once the prompt was taken."""

    async def take_prompt(self, prompt: int, scored: ScoredPrompt) -> None:
        """The scores of prompt number `prompt`; before any of its choices, where asked for."""
        ...

    @property
    def thought_tokens(self) -> ThoughtTokens | None:
        """How many tokens were thoughts; None: the answer is not looked through for any."""
        ...

    def starts_after(self, token_ids: Sequence[int]) -> None:
        """The prompt is this; before any choice, of a request of one prompt."""
        ...

    def chunk(self, index: int, delta: TextDelta, *, first: bool) -> Choice | None:
        """A streamed piece; `first` for the first of this choice. None: there is nothing to tell
        yet, which is never so of the first."""
        ...

    def gathered(self, index: int) -> GatheredChoice:
        """A choice of which nothing has come yet."""
        ...


class ChunkFrame:
    """What stands around every chunk of one answer, encoded once."""

    def __init__(self, envelope: Envelope, object_name: str) -> None:
        whole = envelope.encode(object_name, [])
        self._head = whole.removesuffix(b"]}")

    def encode(
        self, choice: Choice, usage: UsageBody | None | msgspec.UnsetType = msgspec.UNSET
    ) -> bytes:
        """As Envelope's `encode` of that choice."""
        if usage is msgspec.UNSET:
            return b"%b%b]}" % (self._head, _ENCODER.encode(choice))
        return b'%b%b],"usage":%b}' % (
            self._head,
            _ENCODER.encode(choice),
            _ENCODER.encode(usage),
        )


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What stands on every answer and chunk of one request."""

    id: str
    model: str
    fingerprint: str
    created_s: int = msgspec.field(default_factory=lambda: int(time.time()))

    def encode(
        self,
        object_name: str,
        choices: list[Choice],
        *,
        usage: UsageBody | None | msgspec.UnsetType = msgspec.UNSET,
        timing: Timing | None = None,
        prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET,
    ) -> bytes:
        """JSON. An unset usage is left out, a None one is null."""
        answer = Answer(
            id=self.id,
            object=object_name,
            created=self.created_s,
            model=self.model,
            system_fingerprint=self.fingerprint,
            choices=choices,  # type: ignore[arg-type]  # one request's choices are of one type
            usage=usage,
            prompt_logprobs=prompt_logprobs,
            splitserve=msgspec.UNSET if timing is None else timing,
        )
        return _ENCODER.encode(answer)
