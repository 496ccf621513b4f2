"""The parts of a choice that is told in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from router.tools.parts import AnswerPart, CallArguments, CallBegun, CallBroken, Content, Thought


@dataclass(slots=True)
class GatheredCall:
    """`pieces`: of the text of its arguments."""

    name: str
    pieces: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        """All of them."""
        return "".join(self.pieces)


class GatheredParts:
    """A call that broke is content, as if none had been begun."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._thought: list[str] = []
        self._calls: dict[int, GatheredCall] = {}

    @property
    def content(self) -> str:
        """Text for the reader."""
        return "".join(self._content)

    @property
    def thought(self) -> str:
        """The model's reasoning."""
        return "".join(self._thought)

    @property
    def calls(self) -> list[GatheredCall]:
        """Those that are whole, in order, once all parts were added."""
        return list(self._calls.values())

    def add(self, parts: Sequence[AnswerPart]) -> None:
        """The next ones."""
        for part in parts:
            match part:
                case Content(text=text):
                    self._content.append(text)
                case Thought(text=text):
                    self._thought.append(text)
                case CallBegun(index=index, name=name):
                    self._calls[index] = GatheredCall(name)
                case CallArguments(index=index, text=text):
                    self._calls[index].pieces.append(text)
                case CallBroken(index=index, raw=raw):
                    del self._calls[index]
                    self._content.append(raw)
