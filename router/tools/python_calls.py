"""Calls as Python writes them: `[f(a=1), g(b="x")]`, Llama's other way. Nothing is evaluated: the
list is parsed, and only literals are taken."""

from __future__ import annotations

import ast
import re
from typing import Any

from router.tools.call_teller import MAX_NAME_CHARS, CallTeller
from router.tools.json_text import json_dumped
from router.tools.piece_reader import Malformed, PieceReader, Steps

MAX_LIST_CHARS = 1 << 13
"""It is parsed at once, on the event loop."""
MAX_DEPTH = 32
"""Of brackets."""
_NAME = re.compile(r"[A-Za-z0-9_.\-]*")
_PLAIN = re.compile(r"""[^"'\\()\[\]{}]*""")
_JSON_WORDS = {"true": True, "false": False, "null": None}
"""Which models write as well."""
_OPENING, _CLOSING = "([{", ")]}"


def read_call_list(reader: PieceReader, call: CallTeller) -> Steps[None]:
    """From after its `[`. It is told once it is whole; what does not begin with a tool that was
    offered is no list of calls. Raises Malformed."""
    yield from reader.spaces()
    name = ""
    while (yield from reader.peek()):
        more = reader.run(_NAME, MAX_NAME_CHARS - len(name))
        if not more:
            break
        name += more
    if not call.is_known(name) or (yield from reader.peek()) != "(":
        raise Malformed
    text = yield from _rest_of_list(reader)
    for each, arguments in _calls_of(f"[{_as_identifier(name)}{text}", name, call.num_left):
        call.begin(each)
        call.arguments(arguments)
        call.end()


def _rest_of_list(reader: PieceReader) -> Steps[str]:
    """To the bracket that closes it."""
    pieces: list[str] = []
    num_chars, expected = 0, ["]"]
    while expected:
        plain = reader.run(_PLAIN, MAX_LIST_CHARS - num_chars)
        char = yield from reader.peek()
        pieces.append(plain)
        num_chars += len(plain) + 1
        if not char or num_chars > MAX_LIST_CHARS:
            raise Malformed
        if _PLAIN.fullmatch(char):
            num_chars -= 1
            continue
        reader.skip()
        pieces.append(char)
        if char in _OPENING:
            expected.append(_CLOSING[_OPENING.index(char)])
            if len(expected) > MAX_DEPTH:
                raise Malformed
        elif char in _CLOSING:
            if expected.pop() != char:
                raise Malformed
        elif char != "\\":
            quoted = yield from _rest_of_text(reader, char)
            num_chars += len(quoted)
            pieces.append(quoted)
    return "".join(pieces)


def _rest_of_text(reader: PieceReader, quote: str) -> Steps[str]:
    pieces: list[str] = []
    while len(pieces) < MAX_LIST_CHARS:
        char = yield from reader.peek()
        if not char:
            break
        reader.skip()
        pieces.append(char)
        if char == "\\":
            pieces.append((yield from reader.peek()))
            reader.skip()
        elif char == quote:
            return "".join(pieces)
    raise Malformed


def _as_identifier(name: str) -> str:
    return name.replace("-", "_")


def _calls_of(text: str, first_name: str, max_calls: int) -> list[tuple[str, str]]:
    """Names, and arguments as JSON. Raises Malformed for what is no list of calls with literals
    by name."""
    try:
        parsed = ast.parse(text, mode="eval").body
        if not isinstance(parsed, ast.List) or len(parsed.elts) > max_calls:
            raise Malformed
        calls = [_call_of(each) for each in parsed.elts]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise Malformed from None
    return [(first_name, calls[0][1]), *calls[1:]]


def _call_of(node: ast.expr) -> tuple[str, str]:
    if not isinstance(node, ast.Call) or node.args:
        raise Malformed
    arguments: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise Malformed
        arguments[keyword.arg] = _literal(keyword.value)
    name = ast.unparse(node.func)
    if len(name) > MAX_NAME_CHARS or not _NAME.fullmatch(name):
        raise Malformed
    return name, json_dumped(arguments)


def _literal(node: ast.expr | None) -> Any:
    """What it stands for. In one pass: `ast.literal_eval` and a transformer for JSON's words took
    20 ms of 8 KiB. Raises Malformed for what is no literal."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(each) for each in node.elts]
    if isinstance(node, ast.Dict):
        keys = map(_literal, node.keys)
        return dict(zip(keys, map(_literal, node.values), strict=True))
    if isinstance(node, ast.Name) and node.id in _JSON_WORDS:
        return _JSON_WORDS[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        number = node.operand.value if isinstance(node.operand, ast.Constant) else None
        if isinstance(number, int | float) and not isinstance(number, bool):
            return -number if isinstance(node.op, ast.USub) else number
    raise Malformed
