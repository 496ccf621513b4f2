"""Calls whose arguments are JSON: `{"name": .., "arguments": {..}}`, or a name and an object."""

from __future__ import annotations

import re

from router.tools.call_teller import MAX_NAME_CHARS, CallTeller
from router.tools.json_text import object_text, read_text, read_value
from router.tools.piece_reader import Malformed, PieceReader, Steps

MAX_KEY_CHARS = 64
MAX_ID_CHARS = 64
MAX_QUOTED_CHARS = 1 << 20
"""Of arguments that are a string with JSON in it."""
_ARGUMENTS = frozenset({"arguments", "parameters"})
_NAME = re.compile(r"[A-Za-z0-9_.\-]*")


def read_call_object(
    reader: PieceReader, call: CallTeller, *, only_known: bool = False
) -> Steps[None]:
    """One object with a name and arguments, in any order, and whatever else stands in it.
    `only_known`: what names no tool that was offered is no call. Raises Malformed."""
    yield from reader.expect("{")
    name: str | None = None
    early: str | None = None  # arguments that came before the name
    is_first, is_told = True, False
    while not (yield from _is_closed(reader, is_first=is_first)):
        is_first = False
        key = yield from read_text(reader, max_chars=MAX_KEY_CHARS)
        yield from reader.spaces()
        yield from reader.expect(":")
        yield from reader.spaces()
        if key == "name" and name is None:
            name = yield from read_text(reader, max_chars=MAX_NAME_CHARS)
            if only_known and not call.is_known(name):
                raise Malformed
        elif key in _ARGUMENTS and early is None and not is_told:
            if name is None:
                early = yield from _kept_arguments(reader)
            else:
                call.begin(name)
                yield from read_arguments(reader, call)
                is_told = True
        else:
            yield from read_value(reader, _nobody)
    if name is None:
        raise Malformed
    if not is_told:
        call.begin(name)
        call.arguments(early or "{}")
        call.end()


def read_arguments(reader: PieceReader, call: CallTeller) -> Steps[None]:
    """Of a call that has begun, to its end: an object, one in a string, or null. Raises
    Malformed."""
    char = yield from reader.peek()
    if char == "{":
        yield from read_value(reader, call.arguments)
    else:
        call.arguments((yield from _kept_arguments(reader)))
    call.end()


def read_named_call(
    reader: PieceReader, call: CallTeller, separator: str, *, id_word: str
) -> Steps[None]:
    """`name`, maybe `id_word` and an id, maybe the separator, and an object. Raises Malformed."""
    name = yield from _word(reader, MAX_NAME_CHARS)
    if (yield from reader.continues(id_word)):
        yield from _word(reader, MAX_ID_CHARS)
    yield from reader.continues(separator)
    yield from reader.spaces()
    if (yield from reader.peek()) != "{":
        raise Malformed
    call.begin(name)
    yield from read_arguments(reader, call)


def _word(reader: PieceReader, max_chars: int) -> Steps[str]:
    """The longest of letters, digits and what names have beside them; it may be empty."""
    word = ""
    while (yield from reader.peek()):
        more = reader.run(_NAME, max_chars - len(word))
        if not more:
            break
        word += more
    return word


def _kept_arguments(reader: PieceReader) -> Steps[str]:
    char = yield from reader.peek()
    if char == '"':
        text = yield from read_text(reader, max_chars=MAX_QUOTED_CHARS)
        return object_text(text)
    pieces: list[str] = []
    yield from read_value(reader, pieces.append)
    text = "".join(pieces)
    if text == "null":
        return "{}"
    if not text.startswith("{"):
        raise Malformed
    return text


def _is_closed(reader: PieceReader, *, is_first: bool) -> Steps[bool]:
    yield from reader.spaces()
    char = yield from reader.peek()
    if char == "}":
        reader.skip()
        return True
    if not is_first:
        yield from reader.expect(",")
        yield from reader.spaces()
    return False


def _nobody(text: str) -> None:
    """Is told what nobody wants."""
