"""Text that arrives in pieces, read by generators that stop where they need more.

What has been read, and where reading failed, depends on the characters alone and never on how they
were cut into pieces: every step looks at one character after the other, or at a run of one class.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Yields where more text is needed; goes on once it is there or nothing follows."""
_SPACES = re.compile(r"\s*")
MAX_HELD_SPACES = 16
"""Before a marker, and dropped with it; of longer runs only the last are held."""


class Malformed(Exception):
    """What came is not what was to come."""


class PieceReader:
    """One answer's text. `push` and `finish` by who feeds it, all else by the generators."""

    def __init__(self) -> None:
        self._text = ""
        self._place = 0
        self._kept: list[str] = []
        self._num_kept = 0
        self._num_pushed = 0
        self.is_over = False

    def push(self, text: str) -> None:
        """More of it."""
        self._num_pushed += len(text)
        if self._place:
            self._keep(self._text[: self._place])
            self._text = self._text[self._place :] + text
            self._place = 0
        else:
            self._text += text

    def finish(self) -> None:
        """Nothing follows."""
        self.is_over = True

    @property
    def num_read(self) -> int:
        """Characters that were read, from the first on."""
        return self._num_pushed - len(self._text) + self._place

    def mark(self, before: str = "") -> None:
        """`raw` begins here, with `before`."""
        self._text, self._place = self._text[self._place :], 0
        self._kept, self._num_kept = [before], len(before)

    @property
    def raw(self) -> str:
        """All that was read since the mark."""
        return "".join(self._kept) + self._text[: self._place]

    @property
    def num_raw(self) -> int:
        """Its length."""
        return self._num_kept + self._place

    def peek(self) -> Steps[str]:
        """The next character, not read yet; "" at the end."""
        while self._place == len(self._text):
            if self.is_over:
                return ""
            yield
        return self._text[self._place]

    def skip(self) -> None:
        """Past the character that `peek` gave."""
        self._place += 1

    def run(self, pattern: re.Pattern[str], max_chars: int = 1 << 30) -> str:
        """What is there and matches, read; it may go on with the next piece."""
        found = pattern.match(self._text, self._place, self._place + max_chars)
        assert found is not None, "a pattern of runs matches the empty text"
        self._place = found.end()
        return found[0]

    def all_there_is(self) -> str:
        """What is there, read."""
        text = self._text[self._place :]
        self._text, self._place = "", 0
        return text

    def spaces(self) -> Steps[None]:
        """Past them."""
        while self.run(_SPACES) or self._place == len(self._text):
            if self._place == len(self._text) and (yield from self.peek()) == "":
                return

    def continues(self, word: str) -> Steps[bool]:
        """Whether `word` comes next; then it is read. Decided at the first that differs."""
        for index, char in enumerate(word):
            while self._place + index >= len(self._text):
                if self.is_over:
                    return False
                yield
            if self._text[self._place + index] != char:
                return False
        self._place += len(word)
        return True

    def expect(self, word: str) -> Steps[None]:
        """Reads it. Raises Malformed."""
        if not (yield from self.continues(word)):
            raise Malformed

    def until(self, word: str, *, max_chars: int) -> Steps[str]:
        """The text before `word`, which is read too. Raises Malformed where it does not come: then
        nothing was read or, at the end, everything."""
        num_seen = 0
        while True:
            at = self._text.find(word, self._place + num_seen, self._place + max_chars + len(word))
            if at >= 0:
                text = self._text[self._place : at]
                self._place = at + len(word)
                return text
            length = len(self._text) - self._place
            if length >= max_chars + len(word):
                raise Malformed
            if self.is_over:
                self._place = len(self._text)
                raise Malformed
            num_seen = max(0, length - len(word) + 1)
            yield

    def told_until(self, markers: Markers, tell: Callable[[str], None]) -> Steps[str | None]:
        """Tells all text up to the first marker, which is read, as soon as it is none for sure;
        spaces before a marker are dropped. None: the text is over."""
        while True:
            text = self._text[self._place :]
            self._text, self._place = text, 0
            found = markers.search(text)
            if found is not None:
                end = _without_spaces(text, found.start())
                self._tell(end, tell)
                self._place = found.end() - end
                return found[0]
            end = len(text) if self.is_over else _without_spaces(text, markers.certain(text))
            self._tell(end, tell)
            if self.is_over:
                return None
            yield

    def _tell(self, end: int, tell: Callable[[str], None]) -> None:
        if end:
            tell(self._text[:end])
            self._text = self._text[end:]

    def _keep(self, text: str) -> None:
        self._kept.append(text)
        self._num_kept += len(text)


class Markers:
    """Words to be found in a text; of several at one place the first of the list counts."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(words)
        self._pattern = re.compile("|".join(map(re.escape, words)))
        self._first_chars = frozenset(word[0] for word in words)
        self._longest = max(map(len, words))

    def search(self, text: str) -> re.Match[str] | None:
        """The first."""
        return self._pattern.search(text)

    def certain(self, text: str) -> int:
        """Characters before what could still become a marker."""
        for place in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[place] in self._first_chars:
                tail = text[place:]
                if any(word.startswith(tail) for word in self._words):
                    return place
        return len(text)


def _without_spaces(text: str, end: int) -> int:
    start = end
    while start > max(0, end - MAX_HELD_SPACES) and text[start - 1].isspace():
        start -= 1
    return start
