"""/v1/messages by Anthropic's own client, over a real port."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic, beta_async_tool

from cluster.errors import QueueFull, WorkerLost
from cluster.grammar import GrammarKind
from router.dispatch.stream import RoutedRequest, StreamEvent
from router.front.served_model import ServedModel
from tests.router.front_fakes import (
    MODEL,
    Front,
    Script,
    ToolTemplate,
    fails,
    running_front,
    says,
    tool_model,
)

ASK: list[Any] = [{"role": "user", "content": "Weather?"}]
WEATHER: list[Any] = [
    {
        "name": "weather",
        "description": "What it is like",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
NEGATED = WEATHER[0] | {"strict": True, "input_schema": {"not": {}}}
ANSWER: Any = {"type": "tool_result", "content": "rain"}
USE: Any = {"type": "tool_use", "id": "call_1", "name": "weather", "input": {}}


class Switched(ToolTemplate):
    """A template in which thoughts can be switched off."""

    takes = frozenset({"messages", "tools", "enable_thinking"})


@asynccontextmanager
async def asking(
    script: Script, model: ServedModel | None = None
) -> AsyncIterator[tuple[AsyncAnthropic, Front]]:
    model = model or replace(tool_model(), context_limit=lambda: 100_000)
    async with (
        running_front(script, model=model) as front,
        AsyncAnthropic(base_url=front.url, api_key="none", max_retries=0) as client,
    ):
        yield client, front


async def test_a_message_has_its_text_reason_and_usage() -> None:
    async with asking(says("Hello world")) as (client, front):
        answer = await client.messages.create(
            model=MODEL, max_tokens=50, messages=ASK, system="Be kind"
        )
    assert [block.type for block in answer.content] == ["text"]
    assert answer.content[0].type == "text" and answer.content[0].text == "Hello world"
    assert answer.stop_reason == "end_turn" and answer.role == "assistant"
    prompt = bytes(front.source.requests[0].token_ids)
    assert prompt == b"system:Be kind\nuser:Weather?\n"
    assert answer.usage.input_tokens == len(prompt) - 3
    assert answer.usage.cache_read_input_tokens == 3 and answer.usage.output_tokens == 12


async def test_a_stream_gathers_to_what_an_answer_in_one_piece_has() -> None:
    text = f"<think>\nHm.\n</think>\n\nI look.\n{CALL}"
    wishes: Any = {"model": MODEL, "max_tokens": 400, "messages": ASK, "tools": WEATHER}
    async with asking(says(text)) as (client, _):
        async with client.messages.stream(**wishes) as stream:
            names = [event.type async for event in stream]
            streamed = await stream.get_final_message()
        whole = await client.messages.create(**wishes)
    assert _told(streamed) == _told(whole)
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use"]
    assert whole.stop_reason == "tool_use"
    assert names[0] == "message_start" and names[-1] == "message_stop"
    assert names.count("content_block_start") == names.count("content_block_stop") == 3


async def test_the_clients_tool_runner_runs_a_tool_and_asks_again() -> None:
    @beta_async_tool
    async def weather(city: str) -> str:
        """The weather.

        Args:
            city: where
        """
        return f"rain in {city}"

    async def script(request: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        has_result = b"rain in Paris" in bytes(request.token_ids)
        async for event in says("It rains." if has_result else CALL)(request):
            yield event

    async with asking(script) as (client, front):
        runner = client.beta.messages.tool_runner(
            model=MODEL, max_tokens=200, messages=ASK, tools=[weather]
        )
        done = await runner.until_done()
    assert done.content[0].type == "text" and done.content[0].text == "It rains."
    assert len(front.source.requests) == 2  # the thread that it asked for first is refused


async def test_tokens_are_counted_without_a_worker() -> None:
    async with asking(says("x")) as (client, front):
        count = await client.messages.count_tokens(model=MODEL, messages=ASK)
        large: list[Any] = [{"role": "user", "content": "a " * 20_000}]
        many = await client.messages.count_tokens(model=MODEL, messages=large)
    assert count.input_tokens == len("user:Weather?\n")
    assert many.input_tokens == 40_000 + len("user:\n") and not front.source.requests


async def test_a_large_message_is_read_by_a_text_worker() -> None:
    large: list[Any] = [{"role": "user", "content": "a " * 20_000}]
    async with asking(says(CALL)) as (client, _):
        answer = await client.messages.create(
            model=MODEL, max_tokens=200, messages=large, tools=WEATHER
        )
    assert answer.content[0].type == "tool_use" and answer.content[0].input == {"city": "Paris"}


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
async def test_a_call_that_must_come_follows_a_grammar_and_ends_with_tool_use(choice: Any) -> None:
    async with asking(says(CALL)) as (client, front):
        answer = await client.messages.create(
            model=MODEL, max_tokens=200, messages=ASK, tools=WEATHER, tool_choice=choice
        )
    assert answer.content[0].type == "tool_use" and answer.stop_reason == "tool_use"
    grammar = front.source.requests[0].sampling.grammar
    assert grammar is not None and grammar.kind is GrammarKind.TOOLS


@pytest.mark.parametrize("begun", ["The sky", [{"type": "text", "text": "The sky"}]])
@pytest.mark.parametrize("size", [1, 40_000])
async def test_an_answer_goes_on_with_the_assistants_last_message(begun: Any, size: int) -> None:
    turns: list[Any] = [{"role": "user", "content": "a" * size}]
    turns.append({"role": "assistant", "content": begun})
    async with asking(says(" is blue")) as (client, front):
        answer = await client.messages.create(model=MODEL, max_tokens=9, messages=turns)
    assert answer.content[0].type == "text" and answer.content[0].text == " is blue"
    assert bytes(front.source.requests[0].token_ids).endswith(b"assistant:The sky")


async def test_a_tool_that_failed_is_told_to_the_model() -> None:
    result: Any = {"type": "tool_result", "tool_use_id": "call_1", "content": "no such city"}
    turns: list[Any] = [*ASK, {"role": "assistant", "content": [USE]}]
    turns.append({"role": "user", "content": [result | {"is_error": True}]})
    async with asking(says("Oh")) as (client, front):
        await client.messages.create(model=MODEL, max_tokens=9, messages=turns, tools=WEATHER)
    assert b"tool:Error: no such city\n" in bytes(front.source.requests[0].token_ids)


@pytest.mark.parametrize(("wish", "word"), [("disabled", b"False"), ("enabled", b"True")])
async def test_thoughts_are_switched_where_the_template_has_a_switch(
    wish: str, word: bytes
) -> None:
    model = replace(tool_model(), context_limit=lambda: 100_000, template=Switched())
    async with asking(says("Oh"), model) as (client, front):
        thinking: Any = {"type": wish}
        await client.messages.create(model=MODEL, max_tokens=9, messages=ASK, thinking=thinking)
    assert b"enable_thinking=" + word in bytes(front.source.requests[0].token_ids)


async def test_a_model_that_never_thinks_may_be_told_not_to() -> None:
    model = replace(tool_model(thinks=""), context_limit=lambda: 100_000)
    thinking: Any = {"type": "disabled"}
    async with asking(says("Oh"), model) as (client, _):
        assert await client.messages.create(
            model=MODEL, max_tokens=9, messages=ASK, thinking=thinking
        )


@pytest.mark.parametrize("text", ["I say STOP and more", f"{CALL}STOP"])
async def test_a_stop_sequence_ends_an_answer_and_is_named(text: str) -> None:
    wishes: Any = {"model": MODEL, "max_tokens": 200, "messages": ASK, "tools": WEATHER}
    wishes["stop_sequences"] = ["never", "STOP"]
    async with asking(says(text)) as (client, _):
        whole = await client.messages.create(**wishes)
        async with client.messages.stream(**wishes) as stream:
            streamed = await stream.get_final_message()
    for answer in (whole, streamed):
        assert answer.stop_reason == "stop_sequence" and answer.stop_sequence == "STOP"
        assert [block.type for block in answer.content] == ["tool_use" if CALL in text else "text"]
    assert CALL in text or getattr(whole.content[0], "text", "") == "I say "


async def test_stop_sequences_that_do_not_come_change_nothing() -> None:
    async with asking(says("Hello")) as (client, _):
        answer = await client.messages.create(
            model=MODEL, max_tokens=50, messages=ASK, stop_sequences=["x"]
        )
    assert answer.stop_reason == "end_turn" and answer.stop_sequence is None


async def test_an_answer_that_is_cut_says_so() -> None:
    async with asking(says("Hello", ends_with_eos=False)) as (client, _):
        answer = await client.messages.create(model=MODEL, max_tokens=5, messages=ASK)
    assert answer.stop_reason == "max_tokens"


async def test_thinking_with_the_budget_that_clients_send_is_taken() -> None:
    async with asking(says("Hello")) as (client, _):
        answer = await client.messages.create(
            model=MODEL,
            max_tokens=2048,
            messages=ASK,
            thinking={"type": "enabled", "budget_tokens": 1024},
        )
    assert answer.stop_reason == "end_turn"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stop_sequences": ["x"] * 17}, "stop_sequences has 17"),
        ({"stop_sequences": [""]}, "a stop string has 0"),
        ({"thinking": {"type": "disabled"}}, "no switch"),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "budget_tokens"),
        ({"thinking": {"type": "often"}}, "thinking.type is 'often'"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "only functions"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "only text"),
        ({"messages": []}, "messages is empty"),
        ({"messages": [*ASK, {"role": "assistant", "content": " "}]}, "without text"),
        ({"messages": [*ASK, {"role": "assistant", "content": [USE]}]}, "its tool_result"),
        ({"extra_body": {"strange": 1}}, "strange"),
        ({"tools": [WEATHER[0] | {"name": "!"}]}, r"tools\[0\].name is '!'"),
        ({"tools": [NEGATED]}, r"tools\[0\].input_schema: `not`"),
        (
            {"messages": [{"role": "user", "content": [ANSWER]}]},
            r"content\[\].tool_use_id is missing",
        ),
    ],
)
async def test_what_is_not_served_is_refused_in_their_shape(
    changes: dict[str, Any], words: str
) -> None:
    wishes: Any = {"model": MODEL, "max_tokens": 9, "messages": ASK, **changes}
    async with asking(says("x")) as (client, front):
        with pytest.raises(anthropic.BadRequestError, match=words) as refused:
            await client.messages.create(**wishes)
    body: Any = refused.value.body
    assert body["type"] == "error" and body["error"]["type"] == "invalid_request_error"
    assert not front.source.requests


async def test_errors_before_and_in_a_stream_have_their_shape() -> None:
    wishes: Any = {"model": MODEL, "max_tokens": 9, "messages": ASK}
    async with asking(fails(QueueFull("full"))) as (client, _):
        with pytest.raises(anthropic.RateLimitError):
            await client.messages.create(**wishes, stream=True)
    async with asking(fails(WorkerLost("gone"), after="Hel")) as (client, _):
        stream = await client.messages.create(**wishes, stream=True)
        with pytest.raises(anthropic.APIStatusError, match="gone"):
            async for _event in stream:
                pass


def _told(message: Any) -> list[Any]:
    told = [block.model_dump(exclude={"id", "citations"}) for block in message.content]
    return [told, message.stop_reason, message.usage.output_tokens, message.usage.input_tokens]
