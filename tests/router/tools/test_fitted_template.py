"""Templates as they are, and what chats with tools become in them."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.models.text.chat_template import JinjaChatTemplate
from router.tools.answer_parser import AnswerParser, Parsing
from router.tools.content_beside_calls import calls_alone, content_apart
from router.tools.detection import manners_of
from router.tools.fitted_template import FittedTemplate, fitted
from router.tools.formats import FORMATS
from router.tools.parts import CallBegun
from router.tools.told_otherwise import ToldOtherwise
from tests.router.tools.family_templates import (
    CONCATENATING,
    DEEPSEEK_R1,
    DEEPSEEK_V31,
    LLAMA_31,
    QWEN,
)
from tests.router.tools.test_tools_in_text import ASK, CALLS, CHAT, PLAIN, TOOL

SILENT: list[dict[str, Any]] = [
    *ASK,
    {"role": "assistant", "content": "", "tool_calls": CALLS[:1]},
    {"role": "tool", "content": "rain", "tool_call_id": "0", "name": "weather"},
]


def fit(source: str, asked: str = "auto") -> FittedTemplate:
    template = JinjaChatTemplate(source, {})
    return fitted(template, manners_of(source, tools=asked).tools, asked)


@pytest.mark.parametrize(
    ("source", "example"),
    [
        (
            DEEPSEEK_R1,
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>name_of_the_function\n"
            '```json\n{"parameter": "its value"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>\n',
        ),
        (
            DEEPSEEK_V31,
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>name_of_the_function<｜tool▁sep｜>"
            '{"parameter": "its value"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>\n',
        ),
    ],
)
def test_deepseeks_models_are_told_tools_in_a_text_and_call_in_their_own_words(
    source: str, example: str
) -> None:
    made = fit(source)
    assert made.tools is FORMATS["deepseek_v3"] and "tools" in made.template.takes
    told = made.template.render(CHAT, tools=[TOOL])
    assert told.index("<tools>") < told.index('"weather"') < told.index(f"\n{example}")
    assert told.index(example) < told.index("<｜User｜>Weather?")
    assert '{"city": "Paris"}' in told and '{"city": "Rome"}' in told and "<tool_call>" not in told
    assert "<｜tool▁output▁begin｜>sun<｜tool▁output▁end｜>" in told
    parser = AnswerParser(Parsing(tools=made.tools, names={"weather"}))
    parts = parser.finish(told[told.index("<｜User｜>") :])
    assert [part.name for part in parts if isinstance(part, CallBegun)] == ["weather"] * 2


def test_an_answer_of_calls_alone_has_no_turn_for_its_content() -> None:
    told = fit(DEEPSEEK_R1).template.render(SILENT, tools=[TOOL])
    assert "<｜tool▁calls▁end｜><｜end▁of▁sentence｜><｜tool▁output▁begin｜>rain" in told


class Shown:
    """A template that writes what it is given."""

    takes = frozenset[str]()

    def is_short(self, messages: Any) -> bool:
        return True

    def render(self, messages: Any, **_: Any) -> str:
        return "|".join(f"{m['content']}{'+' if m.get('tool_calls') else ''}" for m in messages)


@pytest.mark.parametrize(
    ("content", "is_kept", "told"),
    [("so", True, "so|+"), ("so", False, "+"), ("\n\n", True, "+"), (None, True, "+")],
)
def test_what_is_said_beside_calls_has_a_turn_where_it_says_something(
    content: str | None, is_kept: bool, told: str
) -> None:
    template = ToldOtherwise(Shown(), content_apart if is_kept else calls_alone)
    message = {"role": "assistant", "content": content, "tool_calls": CALLS[:1]}
    assert template.render([message]) == told


def test_a_history_with_calls_needs_no_tools() -> None:
    for source in (DEEPSEEK_R1, DEEPSEEK_V31):
        told = fit(source).template.render(CHAT)
        assert '{"city": "Rome"}' in told and "<tools>" not in told


def test_arguments_are_an_object_where_the_template_takes_one_and_else_a_text() -> None:
    for source in (QWEN, CONCATENATING):
        made = fit(source)
        assert made.tools is FORMATS["hermes"]
        told = made.template.render(CHAT, tools=[TOOL])
        assert told.count('"arguments": {"city": "Paris"}') == 1, source
    assert fit(LLAMA_31).template.render(SILENT, tools=[TOOL]).count('{"city": "Paris"}') == 1


def test_a_template_that_takes_one_call_of_an_answer_back_is_known_by_trying() -> None:
    made = fit(LLAMA_31)
    assert made.one_call and made.tools is FORMATS["llama3_json"]
    first_alone = QWEN.replace("m.tool_calls or []", "(m.tool_calls or [])[:1]")
    assert fit(first_alone).one_call
    for source in (QWEN, DEEPSEEK_R1, DEEPSEEK_V31, PLAIN):
        assert not fit(source).one_call
    assert not fit(LLAMA_31.replace("if tools", "if false").replace("tools |", "1 |")).one_call


def test_what_the_client_sent_is_not_changed() -> None:
    chat = [dict(message) for message in CHAT]
    fit(DEEPSEEK_V31).template.render(chat, tools=[TOOL])
    assert chat == CHAT and CALLS[0]["function"]["arguments"] == {"city": "Paris"}


@pytest.mark.parametrize(
    ("source", "asked", "takes", "form"),
    [
        (DEEPSEEK_R1, "deepseek_v3", True, "deepseek_v3"),
        (DEEPSEEK_R1, "hermes", True, "hermes"),
        (DEEPSEEK_R1, "mistral", False, "mistral"),
        (DEEPSEEK_R1, "none", False, None),
        (PLAIN, "auto", True, "hermes"),
        (PLAIN, "deepseek_v3", False, "deepseek_v3"),
        (PLAIN + "{# <|python_tag|> #}", "auto", True, "hermes"),
    ],
)
def test_the_operators_word_counts_and_else_every_template_has_tools(
    source: str, asked: str, takes: bool, form: str | None
) -> None:
    made = fit(source, asked)
    assert ("tools" in made.template.takes) is takes
    assert made.tools is (None if form is None else FORMATS[form])
    if asked == "hermes":
        assert made.template.render(CHAT, tools=[TOOL]).count("<tool_call>\n{") == 3
