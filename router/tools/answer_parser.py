"""One choice's text, read into thought, content and calls while it comes.

    text -> a thought, if it begins with one -> content and sections of calls, in turns -> over

What has been told after so many characters is the same however they were cut into pieces. Text that
is no call is told at once but for what could still become a marker; what turns out to be no call is
content, with every character that was read of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from router.tools.call_teller import CallTeller
from router.tools.formats import SectionReader, ToolFormat
from router.tools.parts import AnswerPart, CallBegun, CallBroken, Thought, add_content
from router.tools.piece_reader import Malformed, Markers, PieceReader, Steps
from router.tools.tagged_calls import Kinds
from router.tools.thoughts import ThoughtFormat, read_thought


class Parsing(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer may hold beside text."""

    thoughts: ThoughtFormat | None = None
    tools: ToolFormat | None = None
    names: Collection[str] = ()
    """Of the tools that were offered."""
    kinds: Kinds = {}
    only_first_call: bool = False


class AnswerParser:
    """Of one choice. `feed` while it comes, `finish` once."""

    def __init__(self, parsing: Parsing, *, is_thinking: bool = False) -> None:
        """`is_thinking`: the prompt's end has begun a thought."""
        self._parsing = parsing
        self._reader = PieceReader()
        self._parts: list[AnswerPart] = []
        self._call = CallTeller(
            self._reader, self._parts, parsing.names, only_first=parsing.only_first_call
        )
        self.is_thinking = is_thinking
        """What comes next is, for all that is known, a thought."""
        self.has_thought = is_thinking
        """The answer began with one."""
        self.num_thought_chars = 0
        """Of the text, to the end of the thought; once that has come."""
        self.num_calls = 0
        self._has_broken = False
        self._steps = self._run()
        next(self._steps, None)

    @property
    def has_called(self) -> bool:
        """Every call that was begun is whole, and there is one."""
        return self.num_calls > 0 and not self._has_broken

    def feed(self, text: str) -> list[AnswerPart]:
        """What is certain with it."""
        self._reader.push(text)
        next(self._steps, None)
        return self._taken()

    def finish(self, text: str = "") -> list[AnswerPart]:
        """All else, with the last of the text."""
        self._reader.push(text)
        self._reader.finish()
        for _ in self._steps:
            pass
        return self._taken()

    def _taken(self) -> list[AnswerPart]:
        parts = self._parts.copy()
        self._parts.clear()
        for part in parts:
            if isinstance(part, CallBegun):
                self.num_calls += 1
            elif isinstance(part, CallBroken):
                self._has_broken = True
        return parts

    def _run(self) -> Steps[None]:
        if self._parsing.thoughts is not None:
            yield from self._thought(self._parsing.thoughts)
        tools = self._parsing.tools
        if tools is None:
            yield from self._all_content()
            return
        if tools.bare:
            yield from self._bare(tools.bare)
        markers = Markers(list(tools.sections))
        while (marker := (yield from self._reader.told_until(markers, self._content))) is not None:
            yield from self._section(tools.sections[marker], marker)

    def _thought(self, thoughts: ThoughtFormat) -> Steps[None]:
        self._reader.mark()
        is_open = self.is_thinking
        self.is_thinking = True
        self.has_thought = yield from read_thought(
            self._reader, thoughts, self._think, is_open=is_open
        )
        self.is_thinking = False
        self.num_thought_chars = self._reader.num_read if self.has_thought else 0
        if self.has_thought:
            yield from self._reader.spaces()
        else:
            self._content(self._reader.raw)

    def _bare(self, bare: Mapping[str, SectionReader]) -> Steps[None]:
        self._reader.mark()
        yield from self._reader.spaces()
        section = bare.get((yield from self._reader.peek()))
        if section is None:
            self._content(self._reader.raw)
            return
        self._call.mark(self._reader.raw)
        yield from self._section(section, None)

    def _section(self, section: SectionReader, marker: str | None) -> Steps[None]:
        if marker is not None:
            self._call.mark(marker)
        try:
            yield from section(self._reader, self._call, self._parsing.kinds)
            yield from self._reader.spaces()
        except Malformed:
            self._call.give_up()

    def _all_content(self) -> Steps[None]:
        while not self._reader.is_over:
            self._content(self._reader.all_there_is())
            yield
        self._content(self._reader.all_there_is())

    def _content(self, text: str) -> None:
        add_content(self._parts, text)

    def _think(self, text: str) -> None:
        self._parts.append(Thought(text))
