"""Calls whose arguments are written between tags, each by its name: Qwen3-Coder's.

<function=NAME>
<parameter=KEY>
VALUE
</parameter>
</function>
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.tools.call_teller import MAX_NAME_CHARS, CallTeller
from router.tools.family_words import FUNCTION_END, PARAMETER, PARAMETER_END
from router.tools.json_text import json_dumped, json_loaded
from router.tools.piece_reader import Malformed, PieceReader, Steps

MAX_KEY_CHARS = 256
MAX_VALUE_CHARS = 1 << 24
Kinds = Mapping[str, Mapping[str, frozenset[str]]]
"""By tool and parameter: the JSON types that its schema allows; nothing where it says none."""


def read_function(reader: PieceReader, call: CallTeller, kinds: Kinds) -> Steps[None]:
    """From after `<function=` to `</function>`. Values are told one by one. Raises Malformed."""
    name = yield from reader.until(">", max_chars=MAX_NAME_CHARS)
    call.begin(name)
    of_tool = kinds.get(name, {})
    opening = "{"
    while True:
        yield from reader.spaces()
        if (yield from reader.continues(FUNCTION_END)):
            break
        yield from reader.expect(PARAMETER)
        key = yield from reader.until(">", max_chars=MAX_KEY_CHARS)
        text = yield from reader.until(PARAMETER_END, max_chars=MAX_VALUE_CHARS)
        value = typed_value(_without_line_breaks(text), of_tool.get(key, frozenset()))
        call.arguments(f"{opening}{json_dumped(key)}: {json_dumped(value)}")
        opening = ", "
    call.arguments("{}" if opening == "{" else "}")
    call.end()


def typed_value(text: str, kinds: frozenset[str]) -> Any:
    """What is raw text in an answer, as its schema has it; a text where it can be nothing else."""
    if "null" in kinds and text.strip().lower() in ("null", "none"):
        return None
    if "string" in kinds or not kinds:
        return text
    if "boolean" in kinds and text.strip().lower() in ("true", "false"):
        return text.strip().lower() == "true"
    try:
        value = json_loaded(text)
        json_dumped(value)
    except Malformed:
        return text
    return value


def _without_line_breaks(text: str) -> str:
    return text.removeprefix("\n").removesuffix("\n")
