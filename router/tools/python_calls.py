"""Calls as Python writes them: `[f(a=1), g(b="x")]`, Llama's other way. Nothing is evaluated: the
list is parsed, and only literals are taken."""

from __future__ import annotations

import ast
import re
from typing import Any

from router.tools.call_teller import MAX_NAME_CHARS, CallTeller
from router.tools.json_text import json_dumped
from router.tools.piece_reader import Malformed, PieceReader, Steps

MAX_LIST_CHARS = 1 << 16
MAX_DEPTH = 32
"""Of brackets."""
_NAME = re.compile(r"[A-Za-z0-9_.\-]*")
_PLAIN = re.compile(r"""[^"'\\()\[\]{}]*""")
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
    for each, arguments in _calls_of(f"[{_as_identifier(name)}{text}", name):
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


def _calls_of(text: str, first_name: str) -> list[tuple[str, str]]:
    """Names, and arguments as JSON. Raises Malformed for what is no list of calls with literals
    by name."""
    try:
        parsed = ast.parse(text, mode="eval").body
        if not isinstance(parsed, ast.List):
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
        arguments[keyword.arg] = ast.literal_eval(_with_json_words(keyword.value))
    return ast.unparse(node.func), json_dumped(arguments)


class _JsonWords(ast.NodeTransformer):
    """`true`, `false` and `null`, which models write as well."""

    _WORDS = {"true": True, "false": False, "null": None}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self._WORDS[node.id]) if node.id in self._WORDS else node


def _with_json_words(node: ast.expr) -> ast.expr:
    changed = _JsonWords().visit(node)
    assert isinstance(changed, ast.expr)
    return changed
