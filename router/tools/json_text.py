"""JSON that is read character by character, and told on as soon as it is valid for sure.

What is told is JSON even where models are careless: a line break inside a string, which JSON
forbids, becomes an escape, and a number that no float can hold becomes a text. Half a character
(an escape of one surrogate alone) is malformed: no client could read it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from math import isinf
from typing import Any

from router.tools.piece_reader import Malformed, PieceReader, Steps

MAX_DEPTH = 64
MAX_SCALAR_CHARS = 400
"""A number, or true, false, null."""
TellsJson = Callable[[str], None]
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_SCALAR = re.compile(r"[-+.0-9A-Za-z]*")
_VALID_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null")
_HEX = frozenset("0123456789abcdefABCDEF")
_ESCAPES = frozenset('"\\/bfnrt')


def read_value(reader: PieceReader, tell: TellsJson, depth: int = 0) -> Steps[None]:
    """Any value. Raises Malformed."""
    char = yield from reader.peek()
    if char == '"':
        yield from read_string(reader, tell)
    elif char == "{" or char == "[":
        yield from _list_or_object(reader, tell, depth)
    else:
        yield from _scalar(reader, tell)


def read_string(reader: PieceReader, tell: TellsJson, max_chars: int = 1 << 30) -> Steps[None]:
    """With its quotes. Raises Malformed, for a longer one as well."""
    yield from reader.expect('"')
    tell('"')
    while True:
        if plain := reader.run(_PLAIN, max_chars):
            max_chars -= len(plain)
            tell(plain)
        char = yield from reader.peek()
        if char == '"':
            reader.skip()
            tell('"')
            return
        if char == "\\":
            tell((yield from _escape(reader)))
        elif char and char < " ":
            reader.skip()
            tell(json.dumps(char)[1:-1])
        elif not char or max_chars <= 0:
            raise Malformed


def read_text(reader: PieceReader, *, max_chars: int) -> Steps[str]:
    """A string as what it stands for. Raises Malformed, for a longer one as well."""
    pieces: list[str] = []
    yield from read_string(reader, pieces.append, max_chars)
    text: str = json.loads("".join(pieces))
    return text


def json_dumped(value: Any) -> str:
    """As text that every client can read. Raises Malformed for NaN and infinity, for half
    characters, and for what has no JSON."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (ValueError, TypeError, RecursionError):  # a UnicodeError is a ValueError
        raise Malformed from None
    return text


def json_loaded(text: str) -> Any:
    """Any value; a number that no float can hold as its text. Raises Malformed for what is no
    JSON, NaN and its like among it."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_float_or_text)
    except (ValueError, RecursionError):
        raise Malformed from None


def object_text(text: str) -> str:
    """Of an object, written anew. Raises Malformed for what is none."""
    value = json_loaded(text)
    if not isinstance(value, dict):
        raise Malformed
    return json_dumped(value)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _float_or_text(number: str) -> float | str:
    value = float(number)
    return number if isinf(value) else value


def _escape(reader: PieceReader) -> Steps[str]:
    """One character's: two escapes where it takes a pair of surrogates."""
    reader.skip()
    char = yield from reader.peek()
    if char in _ESCAPES and char:
        reader.skip()
        return "\\" + char
    first = yield from _unit(reader)
    if not _is_surrogate(first):
        return first
    yield from reader.expect("\\")
    second = yield from _unit(reader)
    if not first[2:4].lower() < "dc" <= second[2:4].lower() <= "df":
        raise Malformed
    return first + second


def _is_surrogate(unit: str) -> bool:
    return "d8" <= unit[2:4].lower() <= "df"


def _unit(reader: PieceReader) -> Steps[str]:
    """From after its backslash: `\\uXXXX`."""
    yield from reader.expect("u")
    digits = ""
    while len(digits) < 4:
        digit = yield from reader.peek()
        if digit not in _HEX or not digit:
            raise Malformed
        reader.skip()
        digits += digit
    return "\\u" + digits


def _scalar(reader: PieceReader, tell: TellsJson) -> Steps[None]:
    text = ""
    while (yield from reader.peek()):
        more = reader.run(_SCALAR, MAX_SCALAR_CHARS - len(text))
        if not more:
            break
        text += more
    if _VALID_SCALAR.fullmatch(text) is None:
        raise Malformed
    is_float = text[-1].isdigit() and not text.removeprefix("-").isdigit()
    tell(f'"{text}"' if is_float and isinf(float(text)) else text)


def _list_or_object(reader: PieceReader, tell: TellsJson, depth: int) -> Steps[None]:
    if depth >= MAX_DEPTH:
        raise Malformed
    opening = yield from reader.peek()
    closing = "}" if opening == "{" else "]"
    reader.skip()
    tell(opening)
    is_first = True
    while True:
        yield from reader.spaces()
        char = yield from reader.peek()
        if char == closing and is_first:
            break
        if opening == "{":
            yield from read_string(reader, tell)
            yield from reader.spaces()
            yield from reader.expect(":")
            tell(": ")
            yield from reader.spaces()
        yield from read_value(reader, tell, depth + 1)
        yield from reader.spaces()
        char = yield from reader.peek()
        if char == closing:
            break
        yield from reader.expect(",")
        tell(", ")
        is_first = False
    reader.skip()
    tell(closing)
