"""FunctionGemma's calls: `call:NAME{key:<escape>text<escape>,other:3,list:[1,2]}`."""

from __future__ import annotations

import re

from router.tools.call_teller import MAX_NAME_CHARS, CallTeller
from router.tools.family_words import ESCAPE
from router.tools.json_text import MAX_DEPTH, json_dumped, json_loaded
from router.tools.piece_reader import Malformed, PieceReader, Steps

MAX_KEY_CHARS = 256
MAX_TEXT_CHARS = 1 << 24
MAX_BARE_CHARS = 4096
"""Of a value without quotes."""
_KEY = re.compile(r"[^:,{}\[\]\s<]*")
_BARE = re.compile(r"[^,{}\[\]<]*")


def read_gemma_call(reader: PieceReader, call: CallTeller) -> Steps[None]:
    """Values are told one by one. Raises Malformed."""
    yield from reader.expect("call:")
    name = yield from reader.until("{", max_chars=MAX_NAME_CHARS)
    call.begin(name.strip())
    yield from _rest_of_object(reader, call, 1)
    call.end()


def _rest_of_object(reader: PieceReader, call: CallTeller, depth: int) -> Steps[None]:
    call.arguments("{")
    is_first = True
    while not (yield from _is_closed(reader, call, "}", is_first=is_first)):
        key = yield from _key(reader)
        yield from reader.spaces()
        yield from reader.expect(":")
        call.arguments(f"{json_dumped(key)}: ")
        yield from _value(reader, call, depth)
        is_first = False


def _rest_of_list(reader: PieceReader, call: CallTeller, depth: int) -> Steps[None]:
    call.arguments("[")
    is_first = True
    while not (yield from _is_closed(reader, call, "]", is_first=is_first)):
        yield from _value(reader, call, depth)
        is_first = False


def _is_closed(
    reader: PieceReader, call: CallTeller, closing: str, *, is_first: bool
) -> Steps[bool]:
    yield from reader.spaces()
    char = yield from reader.peek()
    if char == closing:
        reader.skip()
        call.arguments(closing)
        return True
    if not is_first:
        yield from reader.expect(",")
        call.arguments(", ")
        yield from reader.spaces()
    return False


def _key(reader: PieceReader) -> Steps[str]:
    if (yield from reader.continues(ESCAPE)):
        return (yield from reader.until(ESCAPE, max_chars=MAX_KEY_CHARS))
    return (yield from _run(reader, _KEY, MAX_KEY_CHARS))


def _value(reader: PieceReader, call: CallTeller, depth: int) -> Steps[None]:
    yield from reader.spaces()
    if depth > MAX_DEPTH:
        raise Malformed
    char = yield from reader.peek()
    if char == "{":
        reader.skip()
        yield from _rest_of_object(reader, call, depth + 1)
    elif char == "[":
        reader.skip()
        yield from _rest_of_list(reader, call, depth + 1)
    elif (yield from reader.continues(ESCAPE)):
        text = yield from reader.until(ESCAPE, max_chars=MAX_TEXT_CHARS)
        call.arguments(json_dumped(text))
    else:
        text = (yield from _run(reader, _BARE, MAX_BARE_CHARS)).strip()
        call.arguments(_bare(text))


def _run(reader: PieceReader, pattern: re.Pattern[str], max_chars: int) -> Steps[str]:
    text = ""
    while (yield from reader.peek()):
        more = reader.run(pattern, max_chars - len(text))
        if not more:
            break
        text += more
    if not text:
        raise Malformed
    return text


def _bare(text: str) -> str:
    """A number, true, false or null as it is; all else is a text."""
    try:
        return json_dumped(json_loaded(text))
    except Malformed:
        return json_dumped(text)
