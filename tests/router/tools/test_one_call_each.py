"""Answers of several calls in templates that take one call of a message."""

from __future__ import annotations

from typing import Any

import pytest

from router.tools.one_call_each import one_call_each
from tests.router.tools.family_templates import DEEPSEEK_R1, LLAMA_31, QWEN
from tests.router.tools.test_fitted_template import fit
from tests.router.tools.test_tools_in_text import ASK, CALLS, CHAT, TOOL

PARIS = '{"name": "weather", "parameters": {"city": "Paris"}}'
ROME = PARIS.replace("Paris", "Rome")


def result(content: str, call_id: str) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": call_id}


def calling(*calls: dict[str, Any], content: str = "") -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (0, 1, 3, 2, 4)], ids=["as called", "crossed"])
def test_each_call_of_an_answer_has_a_message_with_its_own_result_behind_it(
    order: tuple[int, ...],
) -> None:
    told = fit(LLAMA_31).template.render([CHAT[i] for i in order], tools=[TOOL])
    assert told.endswith(f'[user]Weather?{PARIS}[ipython]"rain"{ROME}[ipython]"sun"[user]And?')


def test_a_template_that_leaves_the_second_call_out_gets_it_in_a_message_of_its_own() -> None:
    source = QWEN.replace("m.tool_calls or []", "(m.tool_calls or [])[:1]")
    told = fit(source).template.render(CHAT, tools=[TOOL])
    assert told.count("I look.") == 1
    assert told.index("I look.") < told.index("Paris") < told.index("rain") < told.index("Rome")
    assert told.index("Rome") < told.index("sun") < told.index("And?")


def test_templates_that_take_several_calls_get_them_as_they_came() -> None:
    told = fit(DEEPSEEK_R1).template.render(CHAT, tools=[TOOL])
    assert told.index("Rome") < told.index("rain")


def test_a_chat_without_such_an_answer_is_the_same_and_none_is_changed() -> None:
    chat = [*ASK, calling(CALLS[0]), result("rain", "0"), {"role": "user", "content": "And?"}]
    assert one_call_each(chat) == chat
    before = [dict(message) for message in CHAT]
    assert one_call_each(CHAT) != CHAT and before == CHAT


def test_what_an_answer_says_and_thinks_is_with_its_first_call() -> None:
    answer = {**calling(*CALLS, content="I look."), "reasoning_content": "Hm."}
    first, second = one_call_each([*ASK, answer])[1:]
    assert first == {**answer, "tool_calls": CALLS[:1]}
    assert second == calling(CALLS[1])


def test_results_that_no_id_tells_apart_are_taken_in_their_order() -> None:
    nameless = [{key: value for key, value in call.items() if key != "id"} for call in CALLS]
    twins = [{**call, "id": "same"} for call in CALLS]
    results = [result("rain", "same"), result("sun", "same"), result("more", "same")]
    for calls in (nameless, twins):
        told = one_call_each([*ASK, calling(*calls), *results])
        assert told == [*ASK, calling(calls[0]), results[0], calling(calls[1]), *results[1:]]


def test_a_result_of_no_call_and_a_call_without_a_result_stay() -> None:
    stray, late = result("of nobody", "9"), result("sun", "1")
    again = {"role": "user", "content": "And?"}
    told = one_call_each([*ASK, calling(*CALLS), stray, again, late])
    assert told == [*ASK, calling(CALLS[0]), calling(CALLS[1]), stray, again, late]
