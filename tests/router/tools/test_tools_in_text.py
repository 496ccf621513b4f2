"""Tools for a model whose template knows none: what it is told, and what is left as it was."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.models.cache.store import ModelStore
from cluster.models.text.chat_template import JinjaChatTemplate
from router.front.model_loading import load_text_side
from router.tools.formats import FORMATS
from router.tools.tools_in_text import ToolsInText

PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
REFUSING = "{% if messages[0].role == 'system' %}{{ raise_exception('none') }}{% endif %}" + PLAIN
TURNS = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('turns') }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}"
)
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
ASK = [{"role": "user", "content": "Weather?"}]
CALLS: list[Any] = [
    {"type": "function", "id": str(i), "function": {"name": "weather", "arguments": {"city": city}}}
    for i, city in enumerate(("Paris", "Rome"))
]
CHAT: list[dict[str, Any]] = [
    *ASK,
    {"role": "assistant", "content": "I look.", "tool_calls": CALLS},
    {"role": "tool", "content": "rain", "tool_call_id": "0", "name": "weather"},
    {"role": "tool", "content": "sun", "tool_call_id": "1"},
    {"role": "user", "content": "And?"},
]


def around(source: str) -> ToolsInText:
    return ToolsInText(JinjaChatTemplate(source, {}))


def test_tools_are_told_at_the_end_of_the_system_message() -> None:
    template = around(PLAIN)
    assert "tools" in template.takes
    told = template.render(ASK, tools=[TOOL])
    assert told.startswith("[system]") and '"name": "weather"' in told
    assert told.index("<tools>") < told.index('"weather"') < told.rindex("</tools>")
    assert told.endswith("[user]Weather?")
    kind = template.render([{"role": "system", "content": "Be kind."}, *ASK], tools=[TOOL])
    assert kind.startswith("[system]Be kind.\n\n") and kind.count("[system]") == 1


@pytest.mark.parametrize("source", [REFUSING, "{{ messages[-1].content }}"])
def test_where_no_system_message_is_heard_the_first_of_the_user_has_them(source: str) -> None:
    told = around(source).render(ASK, tools=[TOOL])
    assert "<tools>" in told and told.endswith("\n\nWeather?") and "[system]" not in told


def test_calls_and_what_came_of_them_are_texts_in_turns() -> None:
    told = around(TURNS).render(CHAT, tools=[TOOL])
    first, then = told.removeprefix("[user]").split("[user]")
    asked, answer = first.split("[assistant]")
    assert "<tools>" in asked and asked.endswith("Weather?")
    assert answer.startswith("I look.\n<tool_call>\n") and answer.count("<tool_call>") == 2
    assert '{"name": "weather", "arguments": {"city": "Rome"}}' in answer
    assert then == (
        "<tool_response>\nrain\n</tool_response>\n<tool_response>\nsun\n</tool_response>\nAnd?"
    )


def test_a_chat_without_tools_is_the_templates_alone() -> None:
    chat = [{"role": "system", "content": "Be kind."}, *ASK]
    assert around(PLAIN).render(chat) == JinjaChatTemplate(PLAIN, {}).render(chat)
    assert around(PLAIN).render(ASK, tools=[]) == "[user]Weather?"


def test_what_the_client_sent_is_left_as_it_was() -> None:
    chat = [dict(message) for message in CHAT]
    around(PLAIN).render(chat, tools=[TOOL])
    assert chat == CHAT


@pytest.mark.parametrize(
    ("asked", "told", "form"),
    [("auto", True, "hermes"), ("hermes", True, "hermes"), ("none", False, None),
     ("mistral", False, "mistral")],
)  # fmt: skip
def test_a_real_model_without_tools_is_told_of_them_unless_another_format_is_said(
    asked: str, told: bool, form: str | None
) -> None:
    model = load_text_side(ModelStore().resolve("smollm2"), "smollm2", formats=(asked, "auto"))
    assert isinstance(model.template, ToolsInText) is told
    assert model.manners.tools is (None if form is None else FORMATS[form])
