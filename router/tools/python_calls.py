"""Calls as Python writes them: `[f(a=1), g(b="x")]`, Llama's other way. Nothing is evaluated: the
list is parsed, and only literals are taken.

Names of tools need not be Python's (`write-file`, `import`): each call has a name of its own while
the list is parsed.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any

from router.tools.call_teller import MAX_NAME_CHARS, CallTeller
from router.tools.json_text import json_dumped
from router.tools.piece_reader import Malformed, PieceReader, Steps

MAX_LIST_CHARS = 1 << 13
"""It is parsed at once, on the event loop."""
MAX_DEPTH = 32
"""Of brackets."""
_NAME = re.compile(r"[A-Za-z0-9_.\-]*")
_NEXT = re.compile(r"\s*,\s*([A-Za-z0-9_.\-]+)\s*")
"""What stands between two calls, and the name of the second."""
_PLAIN = re.compile(r"""[^"'\\()\[\]{}]*""")
_JSON_WORDS = {"true": True, "false": False, "null": None}
"""Which models write as well."""
_OPENING, _CLOSING = "([{", ")]}"
_SOURCE = "<calls of a model>"
warnings.filterwarnings("ignore", module=re.escape(_SOURCE))
"""Python warns of escapes that it does not know, once for each line: whatever a model writes is
nothing for the log of a server."""


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
    names = [name]
    text = yield from _rest_of_list(reader, names)
    for each, arguments in _calls_of(f"[{_stand_in(0)}{text}", names, call.num_left):
        call.begin(each)
        call.arguments(arguments)
        call.end()


def _rest_of_list(reader: PieceReader, names: list[str]) -> Steps[str]:
    """From after the first call's name to the bracket that closes the list. The names of other
    calls are added to `names`, and what is parsed in their place stands there."""
    pieces: list[str] = []
    run, num_chars, expected = "", 0, ["]"]
    while expected:
        plain = reader.run(_PLAIN, MAX_LIST_CHARS - num_chars)
        char = yield from reader.peek()
        run += plain
        num_chars += len(plain) + 1
        if not char or num_chars > MAX_LIST_CHARS:
            raise Malformed
        if _PLAIN.fullmatch(char):
            num_chars -= 1
            continue
        reader.skip()
        if char == "(" and len(expected) == 1 and pieces:
            run = _renamed(run, names)
        pieces += (run, char)
        before, run = run, ""
        if char in _OPENING:
            expected.append(_CLOSING[_OPENING.index(char)])
            if len(expected) > MAX_DEPTH:
                raise Malformed
        elif char in _CLOSING:
            if expected.pop() != char:
                raise Malformed
        elif char != "\\":
            has_prefix = before[-1:].isalnum()
            quoted = yield from _rest_of_text(reader, char, as_it_is=has_prefix)
            num_chars += len(quoted)
            pieces.append(quoted)
    return "".join(pieces)


def _renamed(run: str, names: list[str]) -> str:
    """What stands before a call that is not the first. Raises Malformed."""
    found = _NEXT.fullmatch(run)
    if found is None:
        raise Malformed
    names.append(found[1])
    return f", {_stand_in(len(names) - 1)}"


def _rest_of_text(reader: PieceReader, quote: str, *, as_it_is: bool) -> Steps[str]:
    """JSON may escape a slash, which Python does not: it loses its backslash, unless a prefix says
    that the text stands `as_it_is`."""
    pieces: list[str] = []
    while len(pieces) < MAX_LIST_CHARS:
        char = yield from reader.peek()
        if not char:
            break
        reader.skip()
        pieces.append(char)
        if char == "\\" and (escaped := (yield from reader.peek())):
            reader.skip()
            pieces[-1] += escaped
            if pieces[-1] == "\\/" and not as_it_is:
                pieces[-1] = "/"
        elif char == quote:
            return "".join(pieces)
    raise Malformed


def _stand_in(index: int) -> str:
    return f"_{index}"


def _calls_of(text: str, names: list[str], max_calls: int) -> list[tuple[str, str]]:
    """Names, and arguments as JSON. Raises Malformed for what is no list of calls with literals
    by name."""
    if len(names) > max_calls or max(map(len, names)) > MAX_NAME_CHARS:
        raise Malformed
    try:
        parsed = ast.parse(text, _SOURCE, mode="eval").body
        if not isinstance(parsed, ast.List) or len(parsed.elts) != len(names):
            raise Malformed
        calls = [_arguments_of(each, index) for index, each in enumerate(parsed.elts)]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise Malformed from None
    return list(zip(names, calls, strict=True))


def _arguments_of(node: ast.expr, index: int) -> str:
    if not isinstance(node, ast.Call) or node.args or not isinstance(node.func, ast.Name):
        raise Malformed
    if node.func.id != _stand_in(index):
        raise Malformed
    arguments: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise Malformed
        arguments[keyword.arg] = _literal(keyword.value)
    return json_dumped(arguments)


def _literal(node: ast.expr | None) -> Any:
    """What it stands for. In one pass: `ast.literal_eval` and a transformer for JSON's words took
    20 ms of 8 KiB. Raises Malformed for what is no literal."""
    if isinstance(node, ast.Constant):
        return _whole(node.value) if isinstance(node.value, str) else node.value
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


def _whole(text: str) -> str:
    """With one character where JSON has an escape for each half. Raises ValueError for a half that
    is alone."""
    if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
