"""The calls of one answer, told while they are read.

mark -> begin -> arguments* -> end         told as parts
   '----------'-------------'-> give_up    what was read becomes content, or ends the call
"""

from __future__ import annotations

from collections.abc import Collection

from router.tools.parts import (
    AnswerPart,
    CallArguments,
    CallBegun,
    CallBroken,
    CallEnded,
    add_content,
)
from router.tools.piece_reader import Malformed, PieceReader

MAX_CALLS = 128
"""Of one answer: as many as a message that a client sends back may have."""
MAX_NAME_CHARS = 128
"""Of a tool: as Anthropic has it. OpenAI has 64, and clients of MCP, whose names begin with those
of their servers, reach 70."""


class CallTeller:
    """`names`: of the tools that were offered. `only_first`: of later calls nothing is told."""

    def __init__(
        self,
        reader: PieceReader,
        parts: list[AnswerPart],
        names: Collection[str],
        *,
        only_first: bool = False,
    ) -> None:
        self._reader = reader
        self._parts = parts
        self._names = names
        self._only_first = only_first
        self._num_calls = 0
        self._is_open = False
        self._num_told = 0
        """Of what was read since the mark."""

    def mark(self, before: str = "") -> None:
        """A call may begin here, or with `before`, which has been read."""
        self._reader.mark(before)
        self._num_told = 0

    def is_known(self, name: str) -> bool:
        """There is such a tool."""
        return name in self._names

    @property
    def num_left(self) -> int:
        """Calls that may still begin."""
        return MAX_CALLS - self._num_calls

    def begin(self, name: str) -> None:
        """Raises Malformed for what is no name, and for one call too many."""
        if not self.num_left:
            raise Malformed
        if not name or len(name) > MAX_NAME_CHARS or not name.isprintable() or " " in name:
            raise Malformed
        self._is_open = True
        self._num_calls += 1
        self._tell(CallBegun(self._num_calls - 1, name))

    def arguments(self, text: str) -> None:
        """The next piece of their JSON."""
        parts, index = self._parts, self._num_calls - 1
        self._num_told = self._reader.num_raw
        if parts and isinstance(last := parts[-1], CallArguments) and last.index == index:
            parts[-1] = CallArguments(index, last.text + text)
        else:
            self._tell(CallArguments(index, text))

    def end(self) -> None:
        """They are whole."""
        self._is_open = False
        self._num_told = self._reader.num_raw
        self._tell(CallEnded(self._num_calls - 1))

    def give_up(self) -> None:
        """What was read since the mark is not, or no more, a call."""
        raw = self._reader.raw
        rest = raw[self._num_told :]
        if not self._is_open:
            if rest.strip() or not self._num_told:
                add_content(self._parts, rest)
            return
        self._is_open = False
        index = self._num_calls - 1
        if self._is_told(index):
            self._parts.append(CallBroken(index, raw, rest))
        else:
            add_content(self._parts, raw)

    def _is_told(self, index: int) -> bool:
        return not (self._only_first and index)

    def _tell(self, part: CallBegun | CallArguments | CallEnded) -> None:
        if self._is_told(part.index):
            self._parts.append(part)
