"""Grammars with text that reads like a special token: it is spelled by ordinary tokens.

Where only one text may come, llguidance (1.9.1) takes its tokens for the only ones, and for such a
text that is the special token, which its own parser then refuses: the answer would fail there. With
its forcing off every spelling may come, and the special token never does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from os.path import commonprefix

import msgspec

from cluster.grammar import Grammar, parts_of, whole_of

_UNFORCED = '%llguidance {"no_forcing": true}\n'
_OPTIONS = "%llguidance"
_INNER = "form"


class SpecialTexts:
    """Of one vocabulary."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        words = sorted(set(filter(None, texts)))
        self._any = re.compile(_any_of(words)) if words else None

    def spelled(self, grammar: Grammar) -> Grammar:
        """The same, unless it has such a text, in quotes or in an expression. One that a client
        writes with escapes (`\\x3c`) is not seen, and one whose Lark has options keeps them."""
        text = grammar.text
        if self._any is None or _OPTIONS in text or not self._any.search(text.replace("\\", "")):
            return grammar
        return msgspec.structs.replace(grammar, text=_unforced(grammar))


def _any_of(words: list[str], start: int = 0) -> str:
    """An expression for the sorted words from `start` on, which are read together as far as they
    are the same: a text is looked through once, however many words begin as it goes on."""
    parts = list[str]()
    for _, group in groupby(words, key=lambda word: word[start]):
        same = list(group)
        end = len(commonprefix([same[0], same[-1]]))
        begun = re.escape(same[0][start:end])
        # the shortest is found where another one begins with it
        parts.append(begun if len(same[0]) == end else begun + _any_of(same, end))
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"


def _unforced(grammar: Grammar) -> str:
    first, *others = parts_of(grammar)
    if "lark_grammar" not in first:
        first, others = {"lark_grammar": f"start: @{_INNER}"}, [{**first, "name": _INNER}]
    return whole_of([{**first, "lark_grammar": _UNFORCED + first["lark_grammar"]}, *others])
