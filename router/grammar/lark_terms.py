"""What grammars in Lark are written with: words, text without them, and text up to one.

A word that is a special token of the vocabulary is that token: spelled out by others it is another
thing to the model, though not to who reads the text. So free text has no word in either way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

_RESERVED = re.compile(r"([.^$*+?()\[\]{}\\|/&~\-<>\"#\s])")
ANY = r"(?s:.*)"
SPACES = "WS"
"""A term where SPACES_RULE is among the rules: a little white space, or none."""
SPACES_RULE = f"{SPACES}: /[ \\t\\n\\r]{{0,8}}/"


def quoted(text: str) -> str:
    """These very characters."""
    return json.dumps(text, ensure_ascii=False)


def regex(text: str) -> str:
    """The same within an expression."""
    return _RESERVED.sub(lambda found: rf"\x{{{ord(found[0]):x}}}", text)


def without(words: Sequence[str]) -> str:
    """An expression: text in which none of the words is."""
    return without_any([regex(word) for word in words])


def without_any(regexes: Sequence[str]) -> str:
    """The same, of what `regex` has made of words."""
    if not regexes:
        return f"/{ANY}/"
    return f"/{ANY}/ & ~/{ANY}({'|'.join(regexes)}){ANY}/"


def up_to_any(expression: str, name: str, others: Sequence[str] = (), and_: str = "") -> list[str]:
    """Rules: `name` is any text up to the first that matches, with it, and without `others`, as
    `regex` makes them. `and_`: an expression that it must match as well."""
    upper, more = name.upper(), f" & {and_}" if and_ else ""
    before = f" & {without_any(others)}" if others else ""
    return [f"{name}[lazy]: {upper}", f"{upper}: /{ANY}{expression}/{before}{more}"]


class Terms:
    """Of one vocabulary. `special`: ids of those words of a family that are special tokens."""

    def __init__(self, special: Mapping[str, int]) -> None:
        self._special = special

    def word(self, word: str) -> str:
        """A term: the word as the model writes it."""
        token_id = self._special.get(word)
        return quoted(word) if token_id is None else f"<[{token_id}]>"

    def has(self, word: str) -> bool:
        """It is a special token."""
        return word in self._special

    def up_to(
        self, word: str, name: str, *, others: Sequence[str] = (), and_: str = ""
    ) -> list[str]:
        """Rules: `name` is any text up to the word's first, with it, and without `others`.
        `and_`: an expression that the text before it must match as well."""
        if not self.has(word):
            return up_to_any(regex(word), name, [regex(other) for other in others], and_)
        upper, more = name.upper(), f" & {and_}" if and_ else ""
        return [
            f"{name}: {upper} {self.word(word)}",
            f"{upper}: {without([word, *others])}{more}",
        ]
