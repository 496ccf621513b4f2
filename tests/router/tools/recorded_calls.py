"""Answers as models of each family write them, and what they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from router.api.answers.gathered_parts import GatheredParts
from router.tools.answer_parser import AnswerParser, Parsing
from router.tools.formats import FORMATS
from router.tools.parts import AnswerPart, CallArguments, CallEnded, Content, Thought, add_content
from router.tools.thoughts import THOUGHT_FORMATS

KINDS = {
    "weather": {
        "city": frozenset({"string"}),
        "days": frozenset({"integer"}),
        "exact": frozenset({"boolean", "null"}),
        "where": frozenset({"object"}),
    }
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of some days.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "exact": {"type": ["boolean", "null"]},
                    "where": {"type": "object"},
                },
            },
        },
    },
    *(
        {
            "type": "function",
            "function": {
                "name": name,
                "description": "Another.",
                "parameters": {"type": "object", "properties": properties},
            },
        }
        for name, properties in (("now", {}), ("write-file", {"text": {"type": "string"}}))
    ),
]
"""What KINDS and NAMES say, as a client offers it."""
NAMES = frozenset({"weather", "now", "write-file"})
Call = tuple[str, object]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One answer, and what a client is to be told of it."""

    format: str
    text: str
    calls: tuple[Call, ...]
    content: str = ""
    thought: str = ""

    @property
    def parsing(self) -> Parsing:
        return parsing(self.format)


def parsing(name: str) -> Parsing:
    return Parsing(thoughts=THOUGHT_FORMATS[0], tools=FORMATS[name], names=NAMES, kinds=KINDS)


PARIS = ("weather", {"city": "Paris", "days": 2})
NOW = ("now", {})
TRICKY = (
    "weather",
    {"city": 'a"b\\c</tool_call>é☃[TOOL_CALLS]', "where": {"x": [1, -2.5e3, None]}},
)
_TRICKY_JSON = json.dumps(TRICKY[1], ensure_ascii=False)
RECORDED = (
    Recorded(
        "hermes",
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>',
        (PARIS,),
    ),
    Recorded(
        "hermes",
        "<think>\nTwo things.\n</think>\n\nLet me look.\n"
        '<tool_call>\n{"name": "weather", "arguments": ' + _TRICKY_JSON + "}\n</tool_call>\n"
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        (TRICKY, NOW),
        "Let me look.",
        "Two things.",
    ),
    Recorded(
        "hermes",
        '<tool_call>{"id": 7, "arguments": {"city": "Paris", "days": 2}, "name": "weather"}',
        (PARIS,),
    ),
    Recorded(
        "hermes",
        '<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"Paris\\", \\"days\\": 2}"}'
        "</tool_call>",
        (PARIS,),
    ),
    Recorded("hermes", '<tool_call>{"name": "now"}</tool_call>', (NOW,)),
    Recorded(
        "qwen3_coder",
        "I will.\n\n<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n"
        "<parameter=days>\n2\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n"
        '<parameter=where>\n{"x": [1]}\n</parameter>\n</function>\n</tool_call>',
        (("weather", {"city": "Paris", "days": 2, "exact": True, "where": {"x": [1]}}),),
        "I will.",
    ),
    Recorded(
        "qwen3_coder",
        "<tool_call>\n<function=write-file>\n<parameter=text>\nif a < b:\n    </p>\n\n"
        "</parameter>\n</function>\n</tool_call>\n<function=now>\n</function>",
        (("write-file", {"text": "if a < b:\n    </p>\n"}), NOW),
    ),
    Recorded(
        "llama3_json",
        '{"name": "weather", "parameters": {"city": "Paris", "days": 2}}',
        (PARIS,),
    ),
    Recorded(
        "llama3_json",
        '<|python_tag|>{"type": "function", "name": "weather", "parameters": '
        + _TRICKY_JSON
        + '}; {"name": "now", "parameters": {}}',
        (TRICKY, NOW),
    ),
    Recorded(
        "pythonic",
        '[weather(city="Paris", days=2), now(), weather(city="a]\\"b", where={"x": [1, true]})]',
        (PARIS, NOW, ("weather", {"city": 'a]"b', "where": {"x": [1, True]}})),
    ),
    Recorded("pythonic", "<|python_start|>[now()]<|python_end|>", (NOW,)),
    Recorded(
        "mistral",
        '[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Paris", "days": 2}}, '
        '{"name": "now", "arguments": {}}]',
        (PARIS, NOW),
    ),
    Recorded(
        "mistral",
        "Now. [TOOL_CALLS]weather[ARGS]" + _TRICKY_JSON + "[TOOL_CALLS]now[ARGS]{}",
        (TRICKY, NOW),
        "Now.",
    ),
    Recorded(  # version 11
        "mistral",
        "[TOOL_CALLS]weather[CALL_ID]abc123def[ARGS]" + _TRICKY_JSON + "[TOOL_CALLS]now[CALL_ID]"
        "9xZ000000[ARGS]{}",
        (TRICKY, NOW),
    ),
    Recorded(
        "deepseek_v3",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
        '{"city": "Paris", "days": 2}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function'
        "<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        (PARIS, NOW),
    ),
    Recorded(
        "deepseek_v3",
        "Yes.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>"
        + _TRICKY_JSON
        + "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
        (TRICKY, NOW),
        "Yes.",
    ),
    Recorded(
        "gemma",
        "<start_function_call>call:weather{city:<escape>Paris<escape>,days:2}"
        "<end_function_call><start_function_call>call:now{}<end_function_call>",
        (PARIS, NOW),
    ),
    Recorded(
        "gemma",
        "<start_function_call>call:weather{city:<escape>a, {b}<escape>,where:{x:[1,true,"
        "<escape>y<escape>]}}<end_function_call>",
        (("weather", {"city": "a, {b}", "where": {"x": [1, True, "y"]}}),),
    ),
)
FROM_FAMILIES = (
    # Of llama-models' own prompts: an object with its type, and a list with every kind of value.
    Recorded(
        "llama3_json",
        '{"type": "function", "name": "weather", "parameters": {"city": "Menlo Park"}}',
        (("weather", {"city": "Menlo Park"}),),
    ),
    Recorded(
        "llama3_json",
        '<|python_tag|>{"name": "weather", "parameters": {"where": {"lat": 37.5, "on": false}}}',
        (("weather", {"where": {"lat": 37.5, "on": False}}),),
    ),
    Recorded(
        "pythonic",
        "[weather(city='New York', days=-3, exact=None, where={'at': [100, 101.5], 'ok': True}), "
        'now(), weather(city="it\'s 5 > 3; [no]")]',
        (
            (
                "weather",
                {
                    "city": "New York",
                    "days": -3,
                    "exact": None,
                    "where": {"at": [100, 101.5], "ok": True},
                },
            ),
            NOW,
            ("weather", {"city": "it's 5 > 3; [no]"}),
        ),
    ),
    # Of mistral-common: an id beside the name up to version 7, and two calls in each way.
    Recorded(
        "mistral",
        '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Paris", "days": 2}, "id": '
        '"VvvODy9mT"}, {"id": "0cN3zcGgA", "arguments": {}, "name": "now"}]',
        (PARIS, NOW),
    ),
    Recorded(
        "mistral",
        'Both.[TOOL_CALLS]weather[ARGS]{"city": "Paris", "days": 2}[TOOL_CALLS]now[ARGS]{}',
        (PARIS, NOW),
        "Both.",
    ),
    # Of Qwen's prompts: a thought that speaks of calls, several calls on one line, spaces anywhere.
    Recorded(
        "hermes",
        "<think>\nI could write <tool_call> here.\n</think>\n\n"
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
        '<tool_call> { "arguments" : {"city":"Paris","days":2} , "name" : "weather" } </tool_call>',
        (NOW, PARIS),
        "",
        "I could write <tool_call> here.",
    ),
    Recorded(
        "qwen3_coder",
        "<tool_call>\n<function=weather>\n<parameter=city>\n007\n</parameter>\n<parameter=days>\n"
        "12\n</parameter>\n<parameter=exact>\nnull\n</parameter>\n<parameter=where>\n"
        '{"a": [1, {"b": null}]}\n</parameter>\n</function>\n</tool_call>\n'
        "<tool_call>\n<function=write-file>\n<parameter=text>\n</p> x == y && 1 < 2\n</parameter>\n"
        "</function>\n</tool_call>",
        (
            (
                "weather",
                {"city": "007", "days": 12, "exact": None, "where": {"a": [1, {"b": None}]}},
            ),
            ("write-file", {"text": "</p> x == y && 1 < 2"}),
        ),
    ),
)
"""After what the families' own packages and prompts show of their calls."""
MALFORMED = (
    Recorded(
        "hermes",
        "<tool_call>not json</tool_call> and on",
        (),
        "<tool_call>not json</tool_call> and on",
    ),
    Recorded("hermes", "a < b, <tool, <tool_call", (), "a < b, <tool, <tool_call"),
    Recorded(
        "hermes",
        '<tool_call>{"name": 3}<tool_call>{"name": "now"}</tool_call>',
        (NOW,),
        '<tool_call>{"name": 3}',
    ),
    Recorded(
        "hermes",
        '<tool_call>{"name": "now", "arguments": {"a": tru}}</tool_call>',
        (),
        '<tool_call>{"name": "now", "arguments": {"a": tru}}</tool_call>',
    ),
    Recorded(
        "hermes",
        '<tool_call>{"name": "now", "arguments": {"a": "\\u00',
        (),
        '<tool_call>{"name": "now", "arguments": {"a": "\\u00',
    ),
    Recorded(
        "qwen3_coder", "<function=now>\n<parameter=a>\n1", (), "<function=now>\n<parameter=a>\n1"
    ),
    Recorded("llama3_json", ' {"name": "Bob", "age": 3} hi', (), ' {"name": "Bob", "age": 3} hi'),
    Recorded("llama3_json", '{"a": 1}', (), '{"a": 1}'),
    Recorded("pythonic", "[1, 2] and [now()]", (), "[1, 2] and [now()]"),
    Recorded("pythonic", '[now(a="x"', (), '[now(a="x"'),
    Recorded("pythonic", "[now(a=f(1))]", (), "[now(a=f(1))]"),
    Recorded("mistral", "[TOOL_CALLS]{}", (), "[TOOL_CALLS]{}"),
    Recorded("mistral", "[TOOL_CALLS][x]", (), "[TOOL_CALLS][x]"),
    Recorded("mistral", "[TOOL_CALLS]now[CALL_ID][ARGS]", (), "[TOOL_CALLS]now[CALL_ID][ARGS]"),
    Recorded(
        "deepseek_v3",
        "<｜tool▁calls▁begin｜>hm <｜tool▁sep｜>",
        (),
        "<｜tool▁calls▁begin｜>hm <｜tool▁sep｜>",
    ),
    Recorded("gemma", "<start_function_call>f(x)", (), "<start_function_call>f(x)"),
    Recorded("gemma", "<start_function_call>call:now{a:", (), "<start_function_call>call:now{a:"),
)


def parsed(
    recorded: Parsing, pieces: Sequence[str], *, is_thinking: bool = False
) -> tuple[list[AnswerPart], AnswerParser]:
    """All parts, with neighbours of a kind put together."""
    parser = AnswerParser(recorded, is_thinking=is_thinking)
    parts: list[AnswerPart] = []
    for piece in pieces:
        for part in parser.feed(piece):
            _add(parts, part)
    for part in parser.finish():
        _add(parts, part)
    return parts, parser


def gathered(parts: Sequence[AnswerPart]) -> tuple[list[Call], str, str]:
    """Calls, content and thought; arguments as values."""
    whole = GatheredParts()
    whole.add(parts)
    calls = [(each.name, json.loads(each.arguments)) for each in whole.calls]
    assert sum(isinstance(part, CallEnded) for part in parts) == len(calls)
    return calls, whole.content, whole.thought


def _add(parts: list[AnswerPart], part: AnswerPart) -> None:
    last = parts[-1] if parts else None
    if isinstance(part, Content):
        add_content(parts, part.text)
    elif isinstance(part, Thought) and isinstance(last, Thought):
        parts[-1] = Thought(last.text + part.text)
    elif isinstance(part, CallArguments) and isinstance(last, CallArguments):
        parts[-1] = CallArguments(part.index, last.text + part.text)
    else:
        parts.append(part)
