"""How many of an answer's tokens were thoughts, by choice."""

from __future__ import annotations

import math

from router.text.choice import TextDelta
from router.tools.answer_parser import AnswerParser


class ThoughtTokens:
    """Exact where a thought ends with a delta of one token; of several that came at once, those
    count whose part of the text it is."""

    def __init__(self) -> None:
        self._by_choice: dict[int, int] = {}
        self._seen: dict[int, tuple[int, int]] = {}
        """By choice: tokens and characters, to the end of the last delta."""

    @property
    def total(self) -> int:
        """Over all choices."""
        return sum(self._by_choice.values())

    def count(self, index: int, delta: TextDelta, parser: AnswerParser) -> None:
        """A delta that came while the parser of this choice was in a thought has been parsed."""
        num_tokens, num_chars = self._seen.get(index, (0, 0))
        self._seen[index] = (delta.num_tokens, num_chars + len(delta.text))
        if parser.is_thinking:
            self._by_choice[index] = delta.num_tokens
        elif not parser.has_thought:
            self._by_choice.pop(index, None)
        else:
            part = (parser.num_thought_chars - num_chars) / max(1, len(delta.text))
            more = math.ceil((delta.num_tokens - num_tokens) * min(1.0, max(0.0, part)))
            self._by_choice[index] = num_tokens + more
