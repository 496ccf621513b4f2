"""Which formats a checkpoint was trained on, by what its chat template writes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from router.tools.family_words import (
    CALLS_BEGIN,
    FUNCTION,
    FUNCTION_CALL,
    PYTHON_START,
    PYTHON_TAG,
    TOOL_CALL,
    TOOL_CALLS,
)
from router.tools.formats import (
    DEEPSEEK_V3,
    FORMATS,
    GEMMA,
    HERMES,
    LLAMA3_JSON,
    MISTRAL,
    PYTHONIC,
    QWEN3_CODER,
    ToolFormat,
)
from router.tools.thoughts import THOUGHT_FORMATS, ThoughtFormat

AUTO, NONE = "auto", "none"
_SIGNS: tuple[tuple[str, ToolFormat | None], ...] = (
    ("<arg_key>", None),  # GLM-4.5: a name and tags of keys and values in <tool_call>
    ("<seed:tool_call>", None),  # Seed-OSS: words of its own around <function=
    ("func_name1(params_name1", PYTHONIC),
    (PYTHON_START, None),  # Llama 4, whose own template asks for JSON behind that word
    (TOOL_CALLS, MISTRAL),
    (CALLS_BEGIN, DEEPSEEK_V3),
    (FUNCTION_CALL, GEMMA),
    (FUNCTION, QWEN3_CODER),
    (TOOL_CALL, HERMES),
    (PYTHON_TAG, LLAMA3_JSON),
    ("Environment: ipython", LLAMA3_JSON),
)
"""The first that stands in a template counts: a Coder's has `<tool_call>` as well. None: words that
others know too stand in what no reader here can read; better to refuse tools than calls as text."""


class Manners(msgspec.Struct, frozen=True):
    """How a model writes what is not text; None: it does not."""

    tools: ToolFormat | None = None
    thoughts: ThoughtFormat | None = None
    one_call: bool = False
    """An answer has one call at most: its template takes no more of them back."""
    hides_calls: bool = False
    """Words of `tools` are special tokens, which have no text unless it is asked for."""
    hides_thoughts: bool = False
    special: Mapping[str, int] = {}
    """The ids of those words, of `tools` and of `thoughts`."""


def manners_of(
    template: str | None,
    special_words: Mapping[str, int] | None = None,
    *,
    tools: str = AUTO,
    reasoning: str = AUTO,
) -> Manners:
    """`special_words`: the special tokens' ids by their texts. `tools` and `reasoning` are words of
    `--tool-format` and `--reasoning-format`."""
    source, special = template or "", special_words or {}
    tool_format = _tools_in(source) if tools == AUTO else FORMATS.get(tools)
    thoughts = None if reasoning == NONE else _thoughts_in(source)
    of_tools = frozenset() if tool_format is None else tool_format.words & special.keys()
    of_thoughts = frozenset() if thoughts is None else thoughts.words & special.keys()
    return Manners(
        tool_format,
        thoughts,
        hides_calls=bool(of_tools),
        hides_thoughts=bool(of_thoughts),
        special={word: special[word] for word in of_tools | of_thoughts},
    )


def _tools_in(source: str) -> ToolFormat | None:
    return next((found for sign, found in _SIGNS if sign in source), None)


def _thoughts_in(source: str) -> ThoughtFormat | None:
    return next((each for each in THOUGHT_FORMATS if each.end in source), None)
