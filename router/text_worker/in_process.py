"""TextWork without other processes: for tests, and wherever the texts are one's own."""

from __future__ import annotations

from llguidance import LLMatcher

from cluster.errors import InvalidRequest
from cluster.grammar import Grammar
from cluster.models.text.grammars import LIMITS, in_short
from router.front.caller import NOBODY, Caller
from router.front.generation_request import ChatPrompt, TextPrompt
from router.front.served_model import ServedModel
from router.front.text_work import Door, ReadBody
from router.text_worker.desk import TextDesk


class InProcessText:
    """Does the work on the spot. It holds the caller, and has no limit of time or memory."""

    def __init__(self, model: ServedModel, *, ignores_unknown: bool = False) -> None:
        self._desk = TextDesk(model, ignores_unknown=ignores_unknown)

    def why_not_ready(self) -> str | None:
        """See TextWork."""
        return None

    async def start(self) -> None:
        """See TextWork."""

    async def encode(
        self, prompt: TextPrompt | ChatPrompt, max_context_tokens: int, caller: Caller = NOBODY
    ) -> list[int]:
        """See TextWork."""
        return self._desk.encode(prompt, max_context_tokens)

    async def read(
        self, door: Door, body: bytes, max_context_tokens: int, caller: Caller = NOBODY
    ) -> ReadBody:
        """See TextWork."""
        return self._desk.read(door, body, max_context_tokens)

    async def try_grammar(self, grammar: Grammar, caller: Caller = NOBODY) -> None:
        """See TextWork. Without a vocabulary: nothing is known of special tokens."""
        is_wrong, words = LLMatcher.validate_grammar_with_warnings(grammar.text, limits=LIMITS)
        if is_wrong:
            raise InvalidRequest(
                f"the {grammar.kind} cannot be followed: {in_short(words[0])}", param=grammar.kind
            )

    async def close(self) -> None:
        """See TextWork."""
