"""Answers that are told in named events: Anthropic's messages and OpenAI's responses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from cluster.errors import SplitserveError
from router.api.answers.bodies import UsageBody
from router.api.answers.ending import Ending
from router.api.answers.gathered_parts import GatheredParts
from router.api.answers.parsed_chat_shape import ParsedChatShape
from router.api.answers.shape import Envelope
from router.text.tokenizer import Tokenizer
from router.tools.answer_parser import Parsing
from router.tools.parts import AnswerPart


class Telling(Protocol):
    """One answer of one choice: as blocks of events, or in one piece."""

    def begin(self, usage: UsageBody) -> bytes:
        """Before anything else."""
        ...

    def take(self, parts: Sequence[AnswerPart]) -> bytes:
        """What is new; nothing at all for nothing."""
        ...

    def end(self, ending: Ending, usage: UsageBody) -> bytes:
        """After everything else."""
        ...

    def failed(self, error: SplitserveError) -> bytes:
        """Instead of the end."""
        ...

    def whole(self, parts: GatheredParts, ending: Ending, usage: UsageBody) -> bytes:
        """The body of an answer in one piece."""
        ...


class TellingShape(ParsedChatShape):
    """An AnswerShape with a Telling."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        parsing: Parsing,
        make: Callable[[Envelope, Parsing], Telling],
        *,
        is_thinking: bool = False,
    ) -> None:
        super().__init__(
            tokenizer, parsing, logprobs=False, prompt_logprobs=None, is_thinking=is_thinking
        )
        self._make = make

    def telling(self, envelope: Envelope) -> Telling:
        """Of the answer that begins."""
        return self._make(envelope, self._parsing)


def event(name: str, data: dict[str, Any]) -> bytes:
    """With its name before its data, as simple readers of events want it."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))
