"""Chats with tools and with models that think, by OpenAI's own client over a real port."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion

from cluster.models.text.chat_template import JinjaChatTemplate
from router.tools.fitted_template import fitted
from router.tools.formats import FORMATS
from tests.router.api.test_openai_client import client_of
from tests.router.front_fakes import MODEL, Front, running_front, says, tool_model
from tests.router.tools.family_templates import LLAMA_31

ASK: list[Any] = [{"role": "user", "content": "Weather in Paris?"}]
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "What the weather is like",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>'
TWO_CALLS = f"I look.\n{CALL}\n" + CALL.replace("Paris", "Rome")
THOUGHT = "<think>\nHm.\n</think>\n\n"


@asynccontextmanager
async def asking(
    text: str, tools: str = "hermes", *, is_whole: bool = True
) -> AsyncIterator[tuple[AsyncOpenAI, Front]]:
    model = replace(tool_model(tools), context_limit=lambda: 100_000)
    script = says(text, ends_with_eos=is_whole)
    async with running_front(script, model=model) as front, client_of(front) as client:
        yield client, front


async def test_an_answer_that_calls_has_its_calls_and_that_reason() -> None:
    async with asking(TWO_CALLS) as (client, front):
        answer = await client.chat.completions.create(model=MODEL, messages=ASK, tools=[WEATHER])
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content == "I look."
    calls = choice.message.tool_calls
    assert calls is not None and [call.type for call in calls] == ["function", "function"]
    assert [json.loads(call.function.arguments) for call in calls] == [
        {"city": "Paris", "days": 2},
        {"city": "Rome", "days": 2},
    ]
    assert len({call.id for call in calls}) == 2 and calls[0].id.startswith("call_")
    assert bytes(front.source.requests[0].token_ids).startswith(b"tool:weather\nuser:")


async def test_a_streamed_call_has_its_id_type_and_name_once_and_its_index_always() -> None:
    async with asking(TWO_CALLS) as (client, _):
        stream = await client.chat.completions.create(
            model=MODEL, messages=ASK, tools=[WEATHER], stream=True
        )
        chunks = [chunk async for chunk in stream]
    entries = [e for c in chunks for e in c.choices[0].delta.tool_calls or []]
    for index, city in enumerate(("Paris", "Rome")):
        first, *rest = [entry for entry in entries if entry.index == index]
        assert first.id and first.type == "function"
        assert first.function and first.function.name == "weather"
        assert all(e.id is None and e.type is None for e in rest)
        assert all(e.function and e.function.name is None for e in rest)
        text = "".join(e.function.arguments or "" for e in [first, *rest] if e.function)
        assert json.loads(text) == {"city": city, "days": 2} and len(rest) > 10
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "I look."
    assert all(c.choices[0].delta.model_fields_set or c.choices[0].finish_reason for c in chunks)


async def test_the_clients_own_stream_gathers_what_an_answer_in_one_piece_has() -> None:
    async with asking(THOUGHT + TWO_CALLS) as (client, _):
        async with client.chat.completions.stream(
            model=MODEL, messages=ASK, tools=[WEATHER]
        ) as stream:
            done = await stream.get_final_completion()
        whole = await client.chat.completions.create(model=MODEL, messages=ASK, tools=[WEATHER])
    assert _told(done) == _told(whole)


async def test_tools_and_their_results_go_into_the_template() -> None:
    async with asking("Sunny.") as (client, front):
        history: list[Any] = [
            *ASK,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "sun"},
        ]
        answer = await client.chat.completions.create(
            model=MODEL, messages=history, tools=[WEATHER]
        )
    assert answer.choices[0].message.content == "Sunny."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.tool_calls is None
    prompt = bytes(front.source.requests[0].token_ids).decode()
    assert prompt.startswith(
        'tool:weather\n+{"tool_calls": [{"type": "function", "id": "call_1", "function": '
        '{"name": "weather", "arguments": {"city": "Paris"}}}]}\n'
        '+{"tool_call_id": "call_1", "name": "weather"}\n'
    )
    assert prompt.endswith("assistant:\ntool:sun\n")


async def test_a_chat_with_large_tools_is_read_by_a_text_worker_with_the_same_calls() -> None:
    wordy = {**WEATHER, "function": {**WEATHER["function"], "description": "x " * 20_000}}
    async with asking(
        "<function=weather>\n<parameter=days>2</parameter></function>", "qwen3_coder"
    ) as (
        client,
        front,
    ):
        answer = await client.chat.completions.create(model=MODEL, messages=ASK, tools=[wordy])
    calls = answer.choices[0].message.tool_calls
    assert calls is not None and calls[0].function.arguments == '{"days": 2}'
    assert front.source.requests


async def test_tool_choice_none_leaves_the_tools_out() -> None:
    async with asking(CALL) as (client, front):
        answer = await client.chat.completions.create(
            model=MODEL, messages=ASK, tools=[WEATHER], tool_choice="none"
        )
    assert answer.choices[0].message.content == CALL
    assert not bytes(front.source.requests[0].token_ids).startswith(b"tool:")


async def test_without_parallel_calls_only_the_first_is_told() -> None:
    async with asking(TWO_CALLS) as (client, _):
        answer = await client.chat.completions.create(
            model=MODEL, messages=ASK, tools=[WEATHER], parallel_tool_calls=False
        )
    calls = answer.choices[0].message.tool_calls
    assert calls is not None and len(calls) == 1


async def test_a_template_that_takes_one_call_back_is_told_no_more() -> None:
    """Calls that come anyhow, and those that an answer has to have."""
    model = tool_model()
    once = replace(model, manners=msgspec.structs.replace(model.manners, one_call=True))
    once = replace(once, context_limit=lambda: 100_000)
    async with running_front(says(TWO_CALLS), model=once) as front, client_of(front) as client:
        for choice in ("auto", "required"):
            answer = await client.chat.completions.create(
                model=MODEL, messages=ASK, tools=[WEATHER], tool_choice=choice
            )
            calls = answer.choices[0].message.tool_calls
            assert calls is not None and len(calls) == 1
    grammar = front.source.requests[-1].sampling.grammar
    assert grammar is not None and "section)*" not in grammar.text


async def test_a_history_of_two_calls_is_read_on_where_the_template_takes_one() -> None:
    """As another model has made it."""
    template = fitted(JinjaChatTemplate(LLAMA_31, {}), FORMATS["llama3_json"], "auto").template
    model = replace(tool_model("llama3_json"), template=template)
    model = replace(model, context_limit=lambda: 100_000)
    call: Any = {"type": "function", "function": {"name": "weather", "arguments": "{}"}}
    history: list[Any] = [
        *ASK,
        {"role": "assistant", "tool_calls": [{**call, "id": each} for each in ("a", "b")]},
        {"role": "tool", "tool_call_id": "b", "content": "sun"},
        {"role": "tool", "tool_call_id": "a", "content": "rain"},
    ]
    async with running_front(says("Both."), model=model) as front, client_of(front) as client:
        answer = await client.chat.completions.create(
            model=MODEL, messages=history, tools=[WEATHER]
        )
    assert answer.choices[0].message.content == "Both."
    told = bytes(front.source.requests[0].token_ids).decode()
    written = '{"name": "weather", "parameters": {}}'
    assert told.endswith(f'{written}[ipython]"rain"{written}[ipython]"sun"')


async def test_a_call_that_is_cut_off_ends_with_length_and_is_no_call() -> None:
    async with asking(CALL, is_whole=False) as (client, _):
        answer = await client.chat.completions.create(
            model=MODEL, messages=ASK, tools=[WEATHER], max_tokens=60
        )
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.content == CALL[:60]
    assert answer.choices[0].message.tool_calls is None


async def test_a_tool_may_have_a_name_of_128_characters() -> None:
    name = "mcp__" + "n" * 123
    async with asking(CALL.replace("weather", name)) as (client, _):
        answer = await client.chat.completions.create(
            model=MODEL, messages=ASK, tools=[_function(name=name)]
        )
        assert [each.function.name for each in answer.choices[0].message.tool_calls or []] == [name]
        with pytest.raises(openai.BadRequestError, match="1 to 128 letters"):
            await client.chat.completions.create(
                model=MODEL, messages=ASK, tools=[_function(name=name + "n")]
            )


async def test_every_choice_has_its_own_calls() -> None:
    async with asking(CALL) as (client, _):
        stream = await client.chat.completions.create(
            model=MODEL, messages=ASK, tools=[WEATHER], n=2, stream=True
        )
        texts = ["", ""]
        async for chunk in stream:
            for entry in chunk.choices[0].delta.tool_calls or []:
                assert entry.function
                texts[chunk.choices[0].index] += entry.function.arguments or ""
    assert [json.loads(text)["city"] for text in texts] == ["Paris", "Paris"]


async def test_a_thought_is_told_apart_and_its_tokens_are_counted() -> None:
    async with asking(THOUGHT + "Yes.") as (client, _):
        answer = await client.chat.completions.create(model=MODEL, messages=ASK)
        stream = await client.chat.completions.create(
            model=MODEL, messages=ASK, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    message: Any = answer.choices[0].message
    assert (message.content, message.reasoning_content) == ("Yes.", "Hm.")
    deltas: list[Any] = [c.choices[0].delta for c in chunks[:-1]]
    thought = "".join(getattr(d, "reasoning_content", None) or "" for d in deltas)
    assert thought == "Hm." and "".join(d.content or "" for d in deltas) == "Yes."
    for usage in (answer.usage, chunks[-1].usage):
        assert usage is not None and usage.completion_tokens_details is not None
        assert usage.completion_tokens_details.reasoning_tokens == len("<think>\nHm.\n</think>")


@pytest.mark.parametrize("calls", [{}, {"tool_calls": []}])
async def test_an_answer_that_is_only_a_thought_can_be_sent_back(calls: dict[str, Any]) -> None:
    async with asking("<think>\nHm.") as (client, front):
        answer = await client.chat.completions.create(model=MODEL, messages=ASK)
        thought: Any = answer.choices[0].message.model_dump() | calls
        assert thought["content"] is None and thought["reasoning_content"] == "Hm."
        await client.chat.completions.create(model=MODEL, messages=[*ASK, thought, *ASK])
    prompt = bytes(front.source.requests[1].token_ids).decode()
    assert prompt.startswith('+{"reasoning_content": "Hm."}\nuser:')
    assert "\nassistant:\nuser:" in prompt


async def test_a_thought_stays_in_the_content_where_a_client_wants_that() -> None:
    async with asking(THOUGHT + "Yes.") as (client, _):
        answer = await client.chat.completions.create(
            model=MODEL, messages=ASK, extra_body={"reasoning_format": "none"}
        )
        hidden = await client.chat.completions.create(
            model=MODEL, messages=ASK, extra_body={"include_reasoning": False}
        )
    assert answer.choices[0].message.content == THOUGHT + "Yes."
    assert hidden.choices[0].message.content == "Yes."
    assert not hasattr(hidden.choices[0].message, "reasoning_content")


async def test_an_effort_goes_to_a_template_that_takes_it_and_is_refused_elsewhere() -> None:
    async with asking("Yes.") as (client, front):
        await client.chat.completions.create(model=MODEL, messages=ASK, reasoning_effort="low")
    assert bytes(front.source.requests[0].token_ids).startswith(b"reasoning_effort=low\n")
    async with running_front(says("Yes.")) as plain, client_of(plain) as client:
        await client.chat.completions.create(model=MODEL, messages=ASK, reasoning_effort="none")
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model=MODEL, messages=ASK, reasoning_effort="low")
    assert refused.value.param == "reasoning_effort"


def _function(**changes: Any) -> dict[str, Any]:
    return {"type": "function", "function": {**WEATHER["function"], **changes}}


def _deep() -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(40):
        schema = {"properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": [WEATHER] * 129}, "tools"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].function"),
        ({"tools": [_function(name="a b")]}, "tools[0].function.name"),
        ({"tools": [_function(name="x" * 129)]}, "tools[0].function.name"),
        ({"tools": [_function(parameters=_deep())]}, "tools[0].function.parameters"),
        ({"tools": [_function(strange=1)]}, "tools[0].function.strange"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [WEATHER], "tool_choice": "maybe"}, "tool_choice"),
        ({"tools": [WEATHER], "resumable": True, "stream": True}, "resumable"),
        ({"reasoning_format": "auto", "resumable": True, "stream": True}, "resumable"),
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {
                "tools": [WEATHER],
                "tool_choice": {"type": "function", "function": {"name": "other"}},
            },
            "tool_choice",
        ),
        ({"reasoning_format": "some"}, "reasoning_format"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        (
            {"messages": [{"role": "user", "content": "x", "tool_call_id": "a"}]},
            "messages[0].tool_call_id",
        ),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [{"function": {"name": "f", "arguments": "{"}}],
                    }
                ]
            },
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": "x", "tool_calls": [{"function": {"name": "f"}}]}
                ]
            },
            "messages[0].tool_calls",
        ),
    ],
)
async def test_what_is_wrong_with_tools_is_refused_by_name(
    body: dict[str, Any], param: str
) -> None:
    async with asking("x") as (client, front):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.post(
                "/chat/completions", body={"messages": ASK, **body}, cast_to=ChatCompletion
            )
    assert refused.value.param == param and not front.source.requests


async def test_tools_are_refused_where_the_template_or_the_format_is_unknown() -> None:
    async with running_front(says("x")) as front, client_of(front) as client:
        with pytest.raises(openai.BadRequestError, match="no tools.*--tool-format auto or hermes"):
            await client.chat.completions.create(model=MODEL, messages=ASK, tools=[WEATHER])
    async with asking("x", "none") as (client, _):
        with pytest.raises(openai.BadRequestError, match="--tool-format"):
            await client.chat.completions.create(model=MODEL, messages=ASK, tools=[WEATHER])


def _told(answer: Any) -> tuple[Any, ...]:
    message = answer.choices[0].message
    calls = [(c.function.name, c.function.arguments) for c in message.tool_calls]
    return message.content, message.reasoning_content, calls, answer.choices[0].finish_reason
