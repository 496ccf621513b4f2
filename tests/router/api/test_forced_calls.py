"""Calls that a client asks for, and strict functions, by OpenAI's own client over a real port."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Literal

import openai
import pytest
from openai import AsyncOpenAI, pydantic_function_tool
from pydantic import BaseModel

from cluster.grammar import Grammar, GrammarKind
from router.tools.formats import FORMATS
from tests.router.api.test_chats_with_tools import ASK, CALL, TWO_CALLS, WEATHER
from tests.router.api.test_openai_client import client_of
from tests.router.front_fakes import MODEL, Front, running_front, says, tool_model
from tests.router.grammar.matching import accepts

NAMED: Any = {"type": "function", "function": {"name": "weather"}}
NOW: Any = {"type": "function", "function": {"name": "now"}}


class Place(BaseModel):
    """Where."""

    country: str
    town: str


class Forecast(BaseModel):
    """Tells what it will be like."""

    place: Place
    unit: Literal["C", "F"]
    days: int | None


FORECAST = (
    '<tool_call>\n{"name": "Forecast", "arguments": {"place": {"country": "F", "town": "Paris"}, '
    '"unit": "C", "days": 2}}\n</tool_call>'
)


@asynccontextmanager
async def asking(
    text: str, tools: str = "hermes", *, thinks: str = ""
) -> AsyncIterator[tuple[AsyncOpenAI, Front]]:
    model = replace(tool_model(tools, thinks), context_limit=lambda: 100_000)
    async with running_front(says(text), model=model) as front, client_of(front) as client:
        yield client, front


def grammar_of(front: Front) -> Grammar:
    grammar = front.source.requests[-1].sampling.grammar
    assert grammar is not None and grammar.kind is GrammarKind.TOOLS
    return grammar


@pytest.mark.parametrize("stream", [False, True])
async def test_a_required_call_follows_a_grammar_and_ends_with_tool_calls(stream: bool) -> None:
    wishes: Any = {"tools": [WEATHER, NOW], "tool_choice": "required"}
    async with asking(TWO_CALLS) as (client, front):
        message, reason = await _asked(client, stream, wishes)
    assert reason == "tool_calls" and len(message) == 2
    grammar = grammar_of(front)
    assert accepts(grammar, CALL) and accepts(grammar, f"{CALL}\n{CALL}")
    assert not accepts(grammar, TWO_CALLS) and not accepts(grammar, "No.")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_by_name_is_that_one_and_ends_with_stop(stream: bool) -> None:
    wishes: Any = {"tools": [WEATHER, NOW], "tool_choice": NAMED}
    async with asking(CALL) as (client, front):
        message, reason = await _asked(client, stream, wishes)
    assert reason == "stop" and message == ["weather"]
    grammar = grammar_of(front)
    assert accepts(grammar, CALL) and not accepts(grammar, f"{CALL}\n{CALL}")
    assert not accepts(grammar, '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>')
    assert bytes(front.source.requests[0].token_ids).startswith(b"tool:weather\ntool:now\n")


async def _asked(client: AsyncOpenAI, stream: bool, wishes: Any) -> tuple[list[str], str | None]:
    """Names, and the finish reason."""
    if not stream:
        whole = await client.chat.completions.create(model=MODEL, messages=ASK, **wishes)
        calls: Any = whole.choices[0].message.tool_calls
        return [call.function.name for call in calls], whole.choices[0].finish_reason
    chunks = [
        chunk
        async for chunk in await client.chat.completions.create(
            model=MODEL, messages=ASK, stream=True, **wishes
        )
    ]
    entries = [entry for c in chunks for entry in c.choices[0].delta.tool_calls or []]
    names = [entry.function.name for entry in entries if entry.function and entry.function.name]
    return names, chunks[-1].choices[0].finish_reason


async def test_parsed_calls_of_pydantic_tools_are_their_models() -> None:
    tools: Any = [pydantic_function_tool(Forecast)]
    async with asking(FORECAST) as (client, front):
        for choice in ("required", "auto"):
            answer = await client.chat.completions.parse(
                model=MODEL, messages=ASK, tools=tools, tool_choice=choice
            )
            calls = answer.choices[0].message.tool_calls
            assert calls is not None
            told = calls[0].function.parsed_arguments
            assert told == Forecast(place=Place(country="F", town="Paris"), unit="C", days=2)
            grammar = grammar_of(front)
            assert accepts(grammar, FORECAST)
            assert not accepts(grammar, FORECAST.replace('"C"', '"K"'))
            assert accepts(grammar, "Sunny.") is (choice == "auto")


async def test_the_schema_of_a_function_that_is_not_strict_counts_where_a_call_must_come() -> None:
    strict: Any = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
    other: Any = {"type": "function", "function": {**WEATHER["function"], "name": "other"}}
    wrong = CALL.replace("weather", "other").replace("2", '"two"')
    async with asking(CALL) as (client, front):
        for choice, is_free in (("auto", True), ("required", False)):
            await client.chat.completions.create(
                model=MODEL, messages=ASK, tools=[strict, other], tool_choice=choice
            )
            assert accepts(grammar_of(front), wrong) is is_free
            assert not accepts(grammar_of(front), wrong.replace("other", "weather"))


async def test_without_parallel_calls_a_required_call_is_one() -> None:
    async with asking(CALL) as (client, front):
        await client.chat.completions.create(
            model=MODEL,
            messages=ASK,
            tools=[WEATHER],
            tool_choice="required",
            parallel_tool_calls=False,
        )
    assert accepts(grammar_of(front), CALL) and not accepts(grammar_of(front), f"{CALL}\n{CALL}")


async def test_large_tools_are_read_by_a_text_worker_and_have_the_same_grammar() -> None:
    wordy: Any = {**WEATHER, "function": {**WEATHER["function"], "description": "x " * 20_000}}
    async with asking(CALL, thinks="<think></think>") as (client, front):
        for tool in (WEATHER, wordy):
            answer = await client.chat.completions.create(
                model=MODEL, messages=ASK, tools=[tool], tool_choice=NAMED
            )
            assert answer.choices[0].finish_reason == "stop"
    small, large = (each.sampling.grammar for each in front.source.requests)
    assert small == large and small is not None


async def test_a_thought_that_the_prompt_has_begun_is_ended_before_the_call() -> None:
    thought: Any = [{"role": "user", "content": "Weather? <think>"}]
    async with asking(f"Hm.</think>{CALL}", thinks="<think></think>") as (client, front):
        answer = await client.chat.completions.create(
            model=MODEL, messages=thought, tools=[WEATHER], tool_choice="required"
        )
        message: Any = answer.choices[0].message
        assert message.reasoning_content == "Hm." and len(message.tool_calls) == 1
        assert accepts(grammar_of(front), f"Hm.</think>{CALL}")
        assert not accepts(grammar_of(front), CALL)
        await client.chat.completions.create(
            model=MODEL, messages=ASK, tools=[WEATHER], tool_choice="required"
        )
        assert accepts(grammar_of(front), CALL)
        assert accepts(grammar_of(front), f"<think>Hm.</think>{CALL}")


TRIP: Any = {
    "type": "json_schema",
    "json_schema": {
        "name": "trip",
        "schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CITY = '{"city": "Paris"}'


@pytest.mark.parametrize("family", ["hermes", "qwen3_coder", "mistral"])
async def test_beside_a_form_an_answer_keeps_to_that_or_calls(family: str) -> None:
    async with asking(CITY, family) as (client, front):
        answer = await client.chat.completions.create(
            model=MODEL, messages=ASK, tools=[WEATHER], response_format=TRIP
        )
    assert answer.choices[0].message.content == CITY and not answer.choices[0].message.tool_calls
    grammar = grammar_of(front)
    assert accepts(grammar, CITY) and not accepts(grammar, "Hello.")
    if family == "hermes":
        assert accepts(grammar, CALL) and not accepts(grammar, CALL + CITY)


@pytest.mark.parametrize("family", [each.name for each in FORMATS.values() if each.bare])
async def test_where_calls_begin_as_forms_do_one_of_both_has_to_be_chosen(family: str) -> None:
    wishes: Any = {"model": MODEL, "messages": ASK, "tools": [WEATHER], "response_format": TRIP}
    async with asking(CITY, family) as (client, front):
        with pytest.raises(openai.BadRequestError, match="begins calls as JSON") as refused:
            await client.chat.completions.create(**wishes)
        assert refused.value.param == "tools" and not front.source.requests
        await client.chat.completions.create(**wishes, tool_choice="none")
        await client.chat.completions.create(**wishes, tool_choice="required")
    assert front.source.requests[-1].sampling.grammar is not None


async def test_a_call_beside_a_form_is_told_as_one_and_a_required_one_leaves_the_form_out() -> None:
    wishes: Any = {"model": MODEL, "messages": ASK, "tools": [WEATHER], "response_format": TRIP}
    async with asking(CALL, thinks="<think></think>") as (client, front):
        answer = await client.chat.completions.create(**wishes)
        assert answer.choices[0].finish_reason == "tool_calls"
        for text in (CALL, CITY, f"<think>Hm.</think>{CITY}", f"<think>Hm.</think>{CALL}"):
            assert accepts(grammar_of(front), text)
        await client.chat.completions.create(**wishes, tool_choice="required")
        assert accepts(grammar_of(front), CALL) and not accepts(grammar_of(front), CITY)
        await client.chat.completions.create(**wishes, tool_choice="none")
    grammar = front.source.requests[-1].sampling.grammar
    assert grammar is not None and accepts(grammar, CITY) and not accepts(grammar, CALL)


async def test_tools_that_ask_for_nothing_leave_the_answer_free() -> None:
    async with asking(CALL) as (client, front):
        for choice in ("auto", "none"):
            await client.chat.completions.create(
                model=MODEL, messages=ASK, tools=[WEATHER], tool_choice=choice
            )
    assert [each.sampling.grammar for each in front.source.requests] == [None, None]


def _with(parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters, **more}}


PYTHON = '[weather(city="Paris", days=2)]'
GEMMA = "<start_function_call>call:weather{city:<escape>Paris<escape>,days:2}<end_function_call>"


@pytest.mark.parametrize(("family", "call"), [("pythonic", PYTHON), ("gemma", GEMMA)])
async def test_calls_that_are_no_json_are_asked_for_as_all_others(family: str, call: str) -> None:
    strict: Any = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
    async with asking(call, family) as (client, front):
        for wishes in ({"tool_choice": "required", "tools": [WEATHER]}, {"tools": [strict]}):
            answer = await client.chat.completions.create(model=MODEL, messages=ASK, **wishes)
            assert answer.choices[0].finish_reason == "tool_calls"
            grammar = grammar_of(front)
            assert accepts(grammar, call) and not accepts(grammar, call.replace("2", "x"))


STRICT: Any = _with({"type": "object", "properties": {}}, strict=True)


@pytest.mark.parametrize(
    ("wishes", "param"),
    [
        (
            {"tools": [_with({"type": "object", "not": {}})], "tool_choice": "required"},
            "tools[0].function.parameters",
        ),
        (
            {"tools": [WEATHER, _with({"type": "object", "if": {}}, strict=True)]},
            "tools[1].function.parameters",
        ),
        ({"tools": [_with({"type": "array"}, strict=True)]}, "tools[0].function.parameters"),
        (
            {"tools": [STRICT], "extra_body": {"reasoning_format": "none"}},
            "reasoning_format",
        ),
    ],
)
async def test_what_cannot_be_kept_to_is_refused_by_name(wishes: Any, param: str) -> None:
    async with asking("x", thinks="<think></think>") as (client, front):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model=MODEL, messages=ASK, **wishes)
    assert refused.value.param == param and not front.source.requests


async def test_a_response_s_function_without_strict_is_not_strict_and_it_says_so() -> None:
    """A schema that no grammar follows is no reason to refuse it."""
    schema = {"type": "object", "properties": {"city": {"not": {"type": "null"}}}}
    tool: Any = {"type": "function", "name": "weather", "parameters": schema}
    async with asking(CALL) as (client, front):
        answer = await client.responses.create(model=MODEL, input="Weather?", tools=[tool])
    called: Any = answer.output[0]
    told: Any = answer.tools[0]
    assert called.type == "function_call" and told.strict is False
    assert front.source.requests[0].sampling.grammar is None


async def test_a_response_of_strict_functions_is_read_and_says_that_they_are() -> None:
    tool: Any = {"type": "function", **WEATHER["function"], "strict": True}
    async with asking(CALL) as (client, front):
        answer = await client.responses.create(
            model=MODEL, input="Weather?", tools=[tool], tool_choice="required"
        )
    called: Any = answer.output[0]
    assert called.type == "function_call" and json.loads(called.arguments)["city"] == "Paris"
    told: Any = answer.tools[0]
    assert told.strict is True and answer.tool_choice == "required"
    assert accepts(grammar_of(front), CALL)


async def test_a_least_length_beside_calls_is_refused_in_a_sentence() -> None:
    async with asking("x") as (client, _):
        with pytest.raises(openai.BadRequestError, match="grammar of calls to follow") as refused:
            await client.chat.completions.create(
                model=MODEL,
                messages=ASK,
                tools=[WEATHER],
                tool_choice="required",
                extra_body={"min_tokens": 2},
            )
    assert refused.value.param == "min_tokens"
