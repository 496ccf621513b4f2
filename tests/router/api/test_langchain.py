"""Tools and forms by LangChain's own client, unchanged, over a real port."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Literal

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

from router.dispatch.stream import RoutedRequest, StreamEvent
from tests.router.front_fakes import MODEL, Front, Script, running_front, says, tool_model
from tests.router.grammar.matching import accepts

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>'
TWO_CALLS = f"{CALL}\n{CALL.replace('Paris', 'Rome')}"
ASKED = [{"city": "Paris", "days": 2}, {"city": "Rome", "days": 2}]


@tool
def weather(city: str, days: int) -> str:
    """Tells what the weather will be like."""
    return f"rain in {city}"


class Forecast(BaseModel):
    """What the weather will be like."""

    city: str = Field(description="where")
    sky: Literal["sun", "rain"]


@asynccontextmanager
async def asking(script: Script) -> AsyncIterator[tuple[ChatOpenAI, Front]]:
    model = replace(tool_model(), context_limit=lambda: 100_000)
    async with running_front(script, model=model) as front:
        base_url: Any = f"{front.url}/v1"
        yield ChatOpenAI(base_url=base_url, api_key="none", model=MODEL, max_retries=0), front


async def test_bound_tools_are_called_and_their_results_are_sent_back() -> None:
    async def script(request: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        has_result = b"rain in Rome" in bytes(request.token_ids)
        async for event in says("It rains." if has_result else TWO_CALLS)(request):
            yield event

    async with asking(script) as (chat, _):
        bound = chat.bind_tools([weather])
        first = await bound.ainvoke([HumanMessage("Weather?")])
        assert isinstance(first, AIMessage)
        assert [call["args"] for call in first.tool_calls] == ASKED
        assert not first.invalid_tool_calls
        results = [await weather.ainvoke(call) for call in first.tool_calls]
        done = await bound.ainvoke([HumanMessage("Weather?"), first, *results])
    assert done.content == "It rains." and not done.tool_calls


async def test_chunks_of_a_stream_add_up_to_the_same_calls() -> None:
    async with asking(says(f"I look.\n{TWO_CALLS}")) as (chat, _):
        bound, whole = chat.bind_tools([weather]), None
        async for chunk in bound.astream("Weather?"):
            assert isinstance(chunk, AIMessageChunk)
            whole = chunk if whole is None else whole + chunk
    assert whole is not None and [call["args"] for call in whole.tool_calls] == ASKED
    assert whole.content == "I look."
    assert whole.response_metadata["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("choice", ["any", "required", "weather", True])
async def test_a_choice_of_tools_is_followed_by_a_grammar(choice: Any) -> None:
    async with asking(says(CALL)) as (chat, front):
        told = await chat.bind_tools([weather], tool_choice=choice, strict=True).ainvoke("Hm")
    assert isinstance(told, AIMessage) and [call["args"] for call in told.tool_calls] == ASKED[:1]
    grammar = front.source.requests[-1].sampling.grammar
    assert grammar is not None and accepts(grammar, CALL) and not accepts(grammar, "No.")


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
async def test_an_answer_with_structure_is_its_model(method: Any) -> None:
    form = '{"city": "Paris", "sky": "rain"}'
    call = f'<tool_call>\n{{"name": "Forecast", "arguments": {form}}}\n</tool_call>'
    async with asking(says(form if method == "json_schema" else call)) as (chat, front):
        asked = chat.with_structured_output(Forecast, method=method)
        assert await asked.ainvoke("Weather?") == Forecast(city="Paris", sky="rain")
    assert front.source.requests[-1].sampling.grammar is not None
