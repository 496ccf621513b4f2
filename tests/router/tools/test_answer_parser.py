"""Calls and thoughts, under every cut of their text."""

from __future__ import annotations

import random

import pytest

from router.tools.answer_parser import AnswerParser, Parsing
from router.tools.formats import FORMATS
from router.tools.parts import AnswerPart, CallBegun, Content, Thought
from router.tools.thoughts import THOUGHT_FORMATS
from tests.router.tools.recorded_calls import (
    FROM_FAMILIES,
    MALFORMED,
    NOW,
    RECORDED,
    Recorded,
    gathered,
    parsed,
    parsing,
)

READ = [*RECORDED, *FROM_FAMILIES]
ALL = [*READ, *MALFORMED]


def told_after(parser: AnswerParser, pieces: list[str]) -> list[AnswerPart]:
    return [part for piece in pieces for part in parser.feed(piece)]


@pytest.mark.parametrize("recorded", READ, ids=lambda each: f"{each.format}:{each.text[:30]}")
def test_what_a_family_writes_is_its_calls_its_content_and_its_thought(recorded: Recorded) -> None:
    parts, parser = parsed(recorded.parsing, [recorded.text])
    assert gathered(parts) == (list(recorded.calls), recorded.content, recorded.thought)
    assert parser.has_called


@pytest.mark.parametrize("recorded", MALFORMED, ids=lambda each: f"{each.format}:{each.text[:30]}")
def test_what_is_no_call_is_content_with_every_character(recorded: Recorded) -> None:
    parts, parser = parsed(recorded.parsing, [recorded.text])
    assert gathered(parts) == (list(recorded.calls), recorded.content, "")
    assert parser.has_called == bool(recorded.calls)


@pytest.mark.parametrize("recorded", ALL, ids=lambda each: f"{each.format}:{each.text[:30]}")
def test_the_same_parts_come_of_every_cut(recorded: Recorded) -> None:
    text = recorded.text
    whole, _ = parsed(recorded.parsing, [text])
    assert parsed(recorded.parsing, list(text))[0] == whole
    for place in range(len(text)):
        assert parsed(recorded.parsing, [text[:place], text[place:]])[0] == whole, place
    chance = random.Random(7)
    for _ in range(100):
        places = sorted(chance.sample(range(len(text) + 1), min(len(text), chance.randint(1, 6))))
        pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
        assert parsed(recorded.parsing, pieces)[0] == whole, pieces


@pytest.mark.parametrize("recorded", ALL, ids=lambda each: f"{each.format}:{each.text[:30]}")
def test_what_was_told_after_so_many_characters_does_not_depend_on_the_cuts(
    recorded: Recorded,
) -> None:
    text = recorded.text
    one_by_one, told = AnswerParser(recorded.parsing), []
    for end in range(1, len(text) + 1):
        told += one_by_one.feed(text[end - 1])
        at_once = AnswerParser(recorded.parsing).feed(text[:end])
        assert _as_text(at_once) == _as_text(told), text[:end]


def test_random_texts_of_a_small_alphabet_lose_nothing_and_cut_alike() -> None:
    chance = random.Random(11)
    words = {
        "hermes": ["<tool_call>", "</tool_call>", '{"name": "now"', ', "arguments": {}', "}", " x"],
        "qwen3_coder": ["<tool_call>", "<function=now>", "<parameter=a>", "</parameter>", "1"],
        "llama3_json": ['{"name": "now"', ', "parameters": {}', "}", ";", " ", "<|python_tag|>"],
        "pythonic": ["[", "now(", "a=1", ")", "]", ", ", '"'],
        "mistral": ["[TOOL_CALLS]", "now", "[ARGS]", "{}", "[", '{"name": "now"}', ",", "]"],
        "deepseek_v3": [
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁call▁begin｜>",
            "now",
            "<｜tool▁sep｜>",
            "{}",
        ],
        "gemma": ["<start_function_call>", "call:now{", "a:", "<escape>", "1", ",", "}"],
    }
    for name, alphabet in words.items():
        for _ in range(300):
            text = "".join(chance.choices([*alphabet, "<think>", "</think>", "\n"], k=8))
            whole, _ = parsed(parsing(name), [text])
            assert parsed(parsing(name), list(text))[0] == whole, (name, text)
            gathered(whole)


@pytest.mark.parametrize("name", list(FORMATS))
def test_text_that_is_no_call_goes_on_at_once(name: str) -> None:
    parser = AnswerParser(parsing(name))
    assert told_after(parser, ["Hello"]) == [Content("Hello")]
    assert told_after(parser, [" the", "re, a"]) == [Content(" the"), Content("re, a")]


def test_no_more_is_held_than_what_may_become_a_marker() -> None:
    parser = AnswerParser(parsing("hermes"))
    assert told_after(parser, ["a <to"]) == [Content("a")]
    assert told_after(parser, ["ol>"]) == [Content(" <tool>")]
    assert told_after(parser, ["b\n\n"]) == [Content("b")]
    assert parser.finish() == [Content("\n\n")]


def test_arguments_come_as_they_are_written_and_a_name_once() -> None:
    parser = AnswerParser(parsing("hermes"))
    assert told_after(parser, ['<tool_call>{"name": "weather", "arguments"']) == []
    first = told_after(parser, [': {"ci'])
    assert first[0] == CallBegun(0, "weather")
    text = _as_text(first) + _as_text(told_after(parser, ['ty": "Pa', 'ris"', "}"]))
    assert text == 'begin 0 weather{"city": "Paris"}end'


def test_a_prompt_that_opened_a_thought_makes_the_answer_begin_inside() -> None:
    only_thoughts = Parsing(thoughts=THOUGHT_FORMATS[0])
    parts, parser = parsed(only_thoughts, ["so it", " is</thi", "nk>\n\nYes"], is_thinking=True)
    assert parts == [Thought("so it is"), Content("Yes")] and parser.has_thought
    parts, parser = parsed(only_thoughts, ["so it is", "</think> Yes"])
    assert parts == [Content("so it is</think> Yes")] and not parser.has_thought


def test_a_thought_that_is_cut_off_is_a_thought() -> None:
    parts, parser = parsed(Parsing(thoughts=THOUGHT_FORMATS[0]), ["<think>one, two <", "/th"])
    assert parts == [Thought("one, two </th")] and parser.has_thought


def test_an_empty_thought_leaves_nothing_behind() -> None:
    parts, _ = parsed(Parsing(thoughts=THOUGHT_FORMATS[0]), list("<think>\n\n</think>\n\nHi"))
    assert parts == [Content("Hi")]


def test_of_calls_in_parallel_only_the_first_is_told_where_that_was_asked() -> None:
    text = '[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]weather[ARGS]{"a": 1}'
    one = Parsing(tools=FORMATS["mistral"], names=("now",), only_first_call=True)
    assert gathered(parsed(one, list(text))[0]) == ([NOW], "", "")


_CALL = '{"name": "now", "arguments": {}}'


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("hermes", f"<tool_call>\n{_CALL}"),
        ("qwen3_coder", "<function=now>\n</function>"),
        ("llama3_json", _CALL),
        ("pythonic", "<|python_start|>[now()]"),
        ("mistral", f"[TOOL_CALLS][{_CALL}"),
        ("mistral", "[TOOL_CALLS]now[ARGS]{}"),
        (
            "deepseek_v3",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}",
        ),
        ("gemma", "<start_function_call>call:now{}"),
    ],
)
def test_a_name_of_128_characters_is_read_by_every_family(name: str, call: str) -> None:
    tool = "n" * 128
    of_it = Parsing(tools=FORMATS[name], names={tool})
    for text in (call.replace("now", tool), call.replace("now", tool + "n")):
        calls, _, _ = gathered(parsed(of_it, list(text))[0])
        assert calls == ([(tool, {})] if tool + "n" not in text else []), text


def test_deep_nesting_is_no_call_and_no_crash() -> None:
    text = '<tool_call>{"name": "now", "arguments": {"a": ' + "[" * 100_000
    parts, _ = parsed(parsing("hermes"), [text])
    assert gathered(parts)[1] == text
    parts, _ = parsed(parsing("pythonic"), ["[now(a=" + "[" * 100_000])
    assert len(gathered(parts)[1]) == 100_007


def _as_text(parts: list[AnswerPart]) -> str:
    told = ""
    for part in parts:
        match part:
            case Content() | Thought():
                told += part.text
            case CallBegun(index=index, name=name):
                told += f"begin {index} {name}"
            case _:
                told += getattr(part, "text", "end" if not hasattr(part, "rest") else part.rest)
    return told
