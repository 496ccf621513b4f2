"""Models that think do so before they keep to a form, and the form alone is the content."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from cluster.grammar import GrammarKind
from tests.router.api.test_chats_with_tools import ASK, THOUGHT
from tests.router.api.test_openai_client import client_of
from tests.router.front_fakes import MODEL, Front, running_front, says, tool_model
from tests.router.grammar.matching import accepts

FORM = '{"city": "Paris", "days": 2}'


class Trip(BaseModel):
    """Where to, and how long."""

    city: str
    days: int


@asynccontextmanager
async def asking(text: str, thinks: str = "<think></think>") -> AsyncIterator[tuple[Any, Front]]:
    model = replace(tool_model(thinks=thinks), context_limit=lambda: 100_000)
    async with running_front(says(text), model=model) as front, client_of(front) as client:
        yield client, front


async def parsed(client: AsyncOpenAI, **wishes: Any) -> Any:
    answer = await client.chat.completions.parse(
        model=MODEL, messages=ASK, response_format=Trip, **wishes
    )
    return answer.choices[0].message


async def test_a_thought_is_told_apart_from_the_form_that_follows_it() -> None:
    async with asking(THOUGHT + FORM) as (client, front):
        message = await parsed(client)
        assert message.parsed == Trip(city="Paris", days=2) and message.content == FORM
        assert message.model_extra["reasoning_content"].strip() == "Hm."
        async with client.chat.completions.stream(
            model=MODEL, messages=ASK, response_format=Trip
        ) as stream:
            done = await stream.get_final_completion()
    assert done.choices[0].message.parsed == message.parsed
    grammar = front.source.requests[0].sampling.grammar
    assert grammar is not None
    for text in (FORM, THOUGHT + FORM):
        assert accepts(grammar, text) and not accepts(grammar, text.replace("2", "x"))


async def test_a_thought_that_the_prompt_has_begun_is_ended_before_the_form() -> None:
    messages: Any = [{"role": "user", "content": "Hm <think>"}]
    async with asking(f"Hm.\n</think>\n\n{FORM}") as (client, front):
        answer = await client.chat.completions.parse(
            model=MODEL, messages=messages, response_format=Trip
        )
    assert answer.choices[0].message.content == FORM
    grammar = front.source.requests[0].sampling.grammar
    assert grammar is not None and grammar.param == "response_format.json_schema.schema"
    assert accepts(grammar, f"Hm.\n</think>\n\n{FORM}") and not accepts(grammar, FORM)


async def test_a_word_of_thoughts_in_a_clients_text_begins_none() -> None:
    messages: Any = [{"role": "user", "content": "What does <think> mean?"}]
    async with asking("It marks a thought.") as (client, _):
        answer = await client.chat.completions.create(model=MODEL, messages=messages)
    message = answer.choices[0].message
    assert message.content == "It marks a thought."
    assert "reasoning_content" not in (message.model_extra or {})
    async with asking(FORM) as (client, front):
        form = await client.chat.completions.parse(
            model=MODEL, messages=messages, response_format=Trip
        )
    assert form.choices[0].message.content == FORM
    grammar = front.source.requests[0].sampling.grammar
    assert grammar is not None and accepts(grammar, FORM)


@pytest.mark.parametrize("length", [1, 10_000])  # the second is read elsewhere
async def test_an_answer_that_goes_on_with_a_thought_is_one_until_it_ends(length: int) -> None:
    begun: Any = [*ASK, {"role": "assistant", "content": "<think>Let me" + " see" * length}]
    wishes = {"extra_body": {"continue_final_message": True, "add_generation_prompt": False}}
    async with asking(f" now.</think>{FORM}") as (client, front):
        answer = await client.chat.completions.parse(
            model=MODEL, messages=begun, response_format=Trip, **wishes
        )
    message = answer.choices[0].message
    assert message.content == FORM
    assert (message.model_extra or {})["reasoning_content"].strip() == "now."
    grammar = front.source.requests[0].sampling.grammar
    assert grammar is not None and not accepts(grammar, FORM)
    ended: Any = [*ASK, {"role": "assistant", "content": "<think>I see.</think>\n"}]
    async with asking(FORM) as (client, _):
        answer = await client.chat.completions.parse(
            model=MODEL, messages=ended, response_format=Trip, **wishes
        )
    assert answer.choices[0].message.content == FORM


@pytest.mark.parametrize(
    ("thinks", "wishes"),
    [("<think></think>", {"reasoning_format": "none"}), ("", {})],
    ids=["thoughts that are left in the content", "a model without any"],
)
async def test_other_answers_keep_to_the_form_from_their_first_character(
    thinks: str, wishes: dict[str, Any]
) -> None:
    async with asking(FORM, thinks) as (client, front):
        message = await parsed(client, extra_body=wishes)
    assert message.content == FORM and "reasoning_content" not in (message.model_extra or {})
    grammar = front.source.requests[0].sampling.grammar
    assert grammar is not None and grammar.kind is GrammarKind.JSON_SCHEMA
    assert accepts(grammar, FORM) and not accepts(grammar, THOUGHT + FORM)


async def test_a_large_chat_that_is_read_elsewhere_has_the_same_grammar() -> None:
    large: Any = [{"role": "user", "content": "a " * 20_000}]
    async with asking(THOUGHT + FORM) as (client, front):
        await parsed(client)
        await client.chat.completions.parse(model=MODEL, messages=large, response_format=Trip)
    first, second = (request.sampling.grammar for request in front.source.requests)
    assert first == second
