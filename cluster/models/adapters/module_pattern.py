r"""Patterns of module names, matched in a time that is bounded whatever the pattern is.

PEFT takes the keys of `rank_pattern` for regular expressions. What goes back where it fails, as
`re` does, takes hours for some of them, on names of thirty characters. Here all places at which a
part of a pattern may end go on together, as a set.

    a  .  [a-z_]  [^0-9]  \.  \d  \w  ^  $  (a|b)  a*  a+
"""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Final

_Ends = frozenset[int]
"""Characters of the name that are behind."""
_Part = Callable[[str, _Ends], _Ends]
_DIGITS: Final = frozenset(string.digits)
_WORDS: Final = frozenset(string.ascii_letters + string.digits + "_")
_ANY: Final = _WORDS | frozenset(".-")
"""What names of modules are made of."""
_CLASSES: Final = {"d": _DIGITS, "w": _WORDS}
_PLAIN: Final = _ANY
"""A pattern of these alone has no choice in it: a dot stands for any character."""
_MAX_DEPTH: Final = 8


class ModulePattern:
    """Raises ValueError for what is none, or is not supported."""

    def __init__(self, text: str) -> None:
        if not text.isascii():
            raise ValueError("names of modules are ASCII")
        self._text, self.is_plain = text, is_plain(text)
        self._part = None if self.is_plain else _Reader(text).whole()

    def fits(self, name: str) -> bool:
        """Whether it fits the name, or its end behind a dot."""
        if self._part is None:
            return self._fits_plainly(name)
        starts = frozenset((0, *(at + 1 for at, char in enumerate(name) if char == ".")))
        return len(name) in self._part(name, starts)

    def _fits_plainly(self, name: str) -> bool:
        start = len(name) - len(self._text)
        if start < 0 or (start and name[start - 1] != "."):
            return False
        ours = self._text
        return all(a in (b, ".") for a, b in zip(ours, name[start:], strict=True))


def is_plain(text: str) -> bool:
    """Whether it is as good as a name."""
    return _PLAIN.issuperset(text)


class _Reader:
    """Of one pattern."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0

    def whole(self) -> _Part:
        part = self._choice()
        if self._at < len(self._text):
            raise ValueError("a bracket is closed that was not opened")
        return part

    @property
    def _next(self) -> str:
        """Empty at the end."""
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        char = self._next
        if not char:
            raise ValueError("it ends in the middle")
        self._at += 1
        return char

    def _choice(self) -> _Part:
        options = [self._row()]
        while self._next == "|":
            self._take()
            options.append(self._row())
        return options[0] if len(options) == 1 else _one_of(options)

    def _row(self) -> _Part:
        parts: list[_Part] = []
        while self._next not in ("", "|", ")"):
            parts.append(self._item())
        return _one_after_the_other(parts)

    def _item(self) -> _Part:
        char = self._take()
        if char in "*+":
            raise ValueError(f"{char} has nothing to repeat")
        part = self._single(char)
        if self._next not in ("*", "+"):
            return part
        if char in "^$":
            raise ValueError("a place cannot be repeated")
        repeat = self._take()
        if self._next in ("*", "+"):
            raise ValueError("a repeat cannot be repeated")
        return _repeated(part, at_least_once=repeat == "+")

    def _single(self, char: str) -> _Part:
        """What begins with `char`, without its repeat."""
        if char in "^$":
            return _at_start if char == "^" else _at_end
        return self._group() if char == "(" else _char_of(self._chars(char))

    def _group(self) -> _Part:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError(f"more than {_MAX_DEPTH} brackets in each other")
        part = self._choice()
        if self._take() != ")":
            raise ValueError("a bracket is not closed")
        self._depth -= 1
        return part

    def _chars(self, char: str) -> frozenset[str]:
        """What an item that begins with `char` stands for."""
        if char == ".":
            return _ANY
        if char == "\\":
            return self._escaped()
        return self._class() if char == "[" else frozenset(char)

    def _escaped(self) -> frozenset[str]:
        char = self._take()
        if char in _CLASSES:
            return _CLASSES[char]
        if char.isalnum():
            raise ValueError(f"\\{char} is not supported")
        return frozenset(char)

    def _class(self) -> frozenset[str]:
        is_negated = self._next == "^"
        if is_negated:
            self._take()
        found: frozenset[str] = frozenset()
        is_first = True
        while is_first or self._next != "]":
            is_first = False
            found |= self._class_item()
        self._take()
        return _ANY - found if is_negated else found

    def _class_item(self) -> frozenset[str]:
        char = self._take()
        if char == "[":
            raise ValueError("[ inside of [ ] is not supported")
        if char == "\\":
            return self._escaped()
        if self._next != "-" or self._text[self._at + 1 : self._at + 2] in ("", "]"):
            return frozenset(char)
        self._take()
        last = self._take()
        if last in "\\[" or last < char:
            raise ValueError(f"{char}-{last} is no range")
        return frozenset(map(chr, range(ord(char), ord(last) + 1)))


def _char_of(chars: frozenset[str]) -> _Part:
    def go(name: str, places: _Ends) -> _Ends:
        return frozenset(at + 1 for at in places if at < len(name) and name[at] in chars)

    return go


def _at_start(name: str, places: _Ends) -> _Ends:
    return places & {0}


def _at_end(name: str, places: _Ends) -> _Ends:
    return places & {len(name)}


def _one_after_the_other(parts: list[_Part]) -> _Part:
    def go(name: str, places: _Ends) -> _Ends:
        for part in parts:
            if not places:
                break
            places = part(name, places)
        return places

    return go


def _one_of(options: list[_Part]) -> _Part:
    def go(name: str, places: _Ends) -> _Ends:
        return frozenset().union(*(option(name, places) for option in options))

    return go


def _repeated(part: _Part, *, at_least_once: bool) -> _Part:
    def go(name: str, places: _Ends) -> _Ends:
        seen = new = part(name, places) if at_least_once else places
        while new:
            new = part(name, new) - seen
            seen |= new
        return seen

    return go
