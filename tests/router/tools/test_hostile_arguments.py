"""Arguments that no JSON can hold: whatever a model writes, what is told as a call can be read."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from cluster.generation import FinishReason
from router.api.answers.bodies import PromptTokensDetails, UsageBody
from router.api.answers.ending import Ending
from router.api.answers.gathered_parts import GatheredParts
from router.api.answers.message_telling import MessageTelling
from router.api.answers.shape import Envelope
from router.tools.answer_parser import Parsing
from router.tools.formats import FORMATS
from tests.router.tools.recorded_calls import NAMES, parsed

KINDS = {"now": {"a": frozenset({"number", "object", "null"})}}
VALUES = (
    "1e999",
    "-1e999",
    '{"x": [1e999]}',
    "NaN",
    "Infinity",
    "-Infinity",
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '"\\uD83D\\uDE00"',
    '"\\ud83d\\n"',
    '"\\ud83dx"',
    '{"\\ud800": 1}',
    "9" * 400,
    "9" * 5000,
    "0x" + "f" * 5000,
    "[" * 500 + "]" * 500,
    "1j",
    "b'x'",
    "{1, 2}",
    "...",
    "\x00",
    '"\x7f\u2028"',
    "1e-999",
    "None",
)
WAYS = {
    "hermes": ('<tool_call>{"name": "now", "arguments": {"a": ', "}}</tool_call>"),
    "qwen3_coder": ("<function=now>\n<parameter=a>\n", "\n</parameter>\n</function>"),
    "llama3_json": ('{"name": "now", "parameters": {"a": ', "}}"),
    "pythonic": ("[now(a=", ")]"),
    "mistral": ('[TOOL_CALLS]now[ARGS]{"a": ', "}"),
    "deepseek_v3": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{"a": ',
        "}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    "gemma": ("<start_function_call>call:now{a:", "}<end_function_call>"),
}


def parsing(name: str) -> Parsing:
    return Parsing(tools=FORMATS[name], names=NAMES, kinds=KINDS)


def test_every_format_is_among_them() -> None:
    assert set(WAYS) == set(FORMATS)


@pytest.mark.parametrize("name", list(WAYS))
@pytest.mark.parametrize("value", VALUES, ids=lambda value: ascii(value)[:30])
def test_a_call_that_is_told_is_json_for_strict_readers(name: str, value: str) -> None:
    before, after = WAYS[name]
    readable(name, before + value + after)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: ascii(value)[:30])
def test_arguments_in_a_string_are_looked_at_as_closely(value: str) -> None:
    quoted = json.dumps(f'{{"a": {value}}}')
    text = f'<tool_call>{{"name": "now", "arguments": {quoted}}}</tool_call>'
    readable("hermes", text)


def test_a_number_beyond_all_floats_is_a_text_and_half_a_character_no_call() -> None:
    for name in ("hermes", "qwen3_coder", "llama3_json", "mistral", "deepseek_v3", "gemma"):
        before, after = WAYS[name]
        assert readable(name, f"{before}1e999{after}").calls[0].arguments == '{"a": "1e999"}', name
    before, after = WAYS["hermes"]
    text = f'{before}"\\ud800"{after}'
    told = readable("hermes", text)
    assert (told.calls, told.content) == ([], text)
    pair = readable("hermes", f'{before}"\\uD83D\\uDE00"{after}').calls[0].arguments
    assert json.loads(pair) == {"a": "\U0001f600"}


def test_a_message_tells_arguments_as_they_are_and_a_broken_call_as_text() -> None:
    number = "9" * 400
    envelope = Envelope(id="msg_1", model="m", fingerprint="f")
    usage = UsageBody(1, 1, 2, PromptTokensDetails(0))
    before, after = WAYS["hermes"]
    for value, kind, reason in ((number, "tool_use", "tool_use"), ("NaN", "text", "end_turn")):
        parts, parser = parsed(parsing("hermes"), [before + value + after])
        whole = GatheredParts()
        whole.add(parts)
        ending = Ending(reason=FinishReason.STOP, has_called=parser.has_called)
        told = MessageTelling(envelope, parsing("hermes")).whole(whole, ending, usage)
        message: Any = json.loads(told)
        assert [block["type"] for block in message["content"]] == [kind]
        assert number.encode() in told or value not in number
        assert message["stop_reason"] == reason


@pytest.mark.parametrize(
    "text",
    [
        f"[now(a='{'x' * 9000}')]",
        "[now(a=[" + "1," * 5000 + "])]",
        "[" + "now()," * 128 + "now()]",
        "[now(), now(a=1).b(c=2)]",
        "[now(), (lambda: 1)()]",
    ],
    ids=lambda text: text[:20],
)
def test_a_list_that_is_long_or_has_many_calls_or_others_is_content(text: str) -> None:
    told = readable("pythonic", text)
    assert (told.calls, told.content) == ([], text)


def test_literals_of_a_list_are_what_python_and_json_make_of_them() -> None:
    text = "[now(a=[-1, +2.5, true, None, false, null, True], b={'x': (1, 'y')}, c=-1e3)]"
    arguments = json.loads(readable("pythonic", text).calls[0].arguments)
    wanted = [-1, 2.5, True, None, False, None, True]
    assert arguments == {"a": wanted, "b": {"x": [1, "y"]}, "c": -1000.0}


def test_names_in_a_list_need_not_be_python_s() -> None:
    text = '[write-file(text="a"), import(a=1) , write-file(text="b"),]'
    told = [(call.name, json.loads(call.arguments)) for call in readable("pythonic", text).calls]
    assert told == [
        ("write-file", {"text": "a"}),
        ("import", {"a": 1}),
        told[0][:1] + ({"text": "b"},),
    ]


def test_texts_in_a_list_are_what_python_and_json_make_of_them() -> None:
    text = r"""[now(a="\d <\/b> \ud83d\ude00", b=r"\d\/", c='\x41\N{DIGIT ONE}', d=1)]"""
    arguments = json.loads(readable("pythonic", text).calls[0].arguments)
    assert arguments == {"a": "\\d </b> \U0001f600", "b": "\\d\\/", "c": "A1", "d": 1}


def test_whatever_a_model_writes_python_warns_nobody_of_it() -> None:
    code = (
        "from tests.router.tools.recorded_calls import parsed, parsing\n"
        "print(parsed(parsing('pythonic'), [r'[now(a=\"\\d\", b=1or 2), now(a=\"\\777\")]'])[0])"
    )
    command = [sys.executable, "-W", "always", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "now(a=" in done.stdout and not done.stderr


def test_a_list_that_ends_in_an_escape_is_content() -> None:
    text = '[now(a="x\\'
    told = readable("pythonic", text)
    assert (told.calls, told.content) == ([], text)


def test_an_answer_has_as_many_calls_as_a_message_may_have() -> None:
    one = '<tool_call>{"name": "now"}</tool_call>'
    told = readable("hermes", one * 130)
    assert (len(told.calls), told.content) == (128, one * 2)


def readable(name: str, text: str) -> GatheredParts:
    """What came of it, once any reader has read it; the same for every cut."""
    parts, _ = parsed(parsing(name), [text])
    assert parsed(parsing(name), list(text))[0] == parts
    msgspec.json.encode(parts)
    whole = GatheredParts()
    whole.add(parts)
    for call in whole.calls:
        strictly = json.loads(call.arguments, parse_constant=_no_constant)
        assert msgspec.json.decode(call.arguments) == strictly
        assert isinstance(strictly, dict)
    return whole


def _no_constant(constant: str) -> None:
    raise AssertionError(constant)
