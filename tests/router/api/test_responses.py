"""/v1/responses by OpenAI's own client, over a real port."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from cluster.errors import WorkerLost
from router.api.answers.bodies import PromptTokensDetails, UsageBody
from router.api.answers.response_telling import ResponseTelling
from router.api.answers.shape import Envelope
from router.tools.answer_parser import Parsing
from router.tools.parts import Content
from tests.router.api.test_chats_with_tools import asking
from tests.router.api.test_openai_client import client_of
from tests.router.front_fakes import MODEL, fails, running_front

WEATHER: list[Any] = [
    {
        "type": "function",
        "name": "weather",
        "description": "What it is like",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        "strict": False,
    }
]
STRICT = WEATHER[0] | {"strict": True}
SCHEMA: dict[str, Any] = {"type": "json_schema", "name": "x"}
CALLED = {"type": "function_call", "call_id": "c1", "name": "weather"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "rain"}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
ALL = f"<think>\nHm.\n</think>\n\nI look.\n{CALL}"


async def test_a_response_has_its_text_and_usage_and_is_not_stored() -> None:
    async with asking("Hello world") as (client, front):
        answer = await client.responses.create(
            model=MODEL, input="Hi", instructions="Be kind", store=True
        )
    assert answer.output_text == "Hello world" and answer.status == "completed"
    assert answer.store is False and answer.id.startswith("resp-")
    assert bytes(front.source.requests[0].token_ids) == b"system:Be kind\nuser:Hi\n"
    assert answer.usage is not None and answer.usage.input_tokens_details.cached_tokens == 3
    assert answer.usage.output_tokens == 12


async def test_the_events_of_a_stream_come_in_order_with_their_numbers() -> None:
    async with asking(ALL) as (client, _):
        stream = await client.responses.create(
            model=MODEL, input="Weather?", tools=WEATHER, stream=True
        )
        events: list[Any] = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    names: list[str] = []
    for event in events:
        if not names or names[-1] != event.type:
            names.append(event.type.removeprefix("response."))
            names = [n for i, n in enumerate(names) if i == 0 or n != names[i - 1]]
    assert names == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    done = [event.item for event in events if event.type == "response.output_item.done"]
    final = events[-1].response
    assert [item.id for item in final.output] == [item.id for item in done]
    assert [item.type for item in done] == ["reasoning", "message", "function_call"]
    assert json.loads(done[2].arguments) == {"city": "Paris"} and done[2].call_id
    assert final.usage.output_tokens_details.reasoning_tokens > 0


async def test_the_clients_own_stream_gathers_what_an_answer_in_one_piece_has() -> None:
    async with asking(ALL) as (client, _):
        async with client.responses.stream(model=MODEL, input="Hi", tools=WEATHER) as stream:
            async for _event in stream:
                pass
            streamed = await stream.get_final_response()
        whole = await client.responses.create(model=MODEL, input="Hi", tools=WEATHER)
    assert _told(streamed) == _told(whole)


async def test_items_of_an_earlier_answer_become_one_message_and_its_results() -> None:
    async with asking("Rain.") as (client, front):
        items: list[Any] = [
            {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": []},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        ]
        await client.responses.create(model=MODEL, input=items, tools=WEATHER)
    prompt = bytes(front.source.requests[0].token_ids).decode()
    assert prompt.endswith("user:Weather?\nassistant:\ntool:rain\n")
    assert '+{"tool_call_id": "c1", "name": "weather"}' in prompt


async def test_an_answer_that_is_only_a_thought_can_be_sent_back() -> None:
    async with asking("<think>\nHm") as (client, front):
        asked: Any = {"role": "user", "content": "Weather?"}
        answer = await client.responses.create(model=MODEL, input=[asked])
        items: list[Any] = [asked, *(item.model_dump() for item in answer.output), asked]
        assert [item.get("type") for item in items] == [None, "reasoning", None]
        await client.responses.create(model=MODEL, input=items)
    prompt = bytes(front.source.requests[1].token_ids).decode()
    assert prompt.startswith('+{"reasoning_content": "Hm')
    assert prompt.endswith("user:Weather?\nassistant:\nuser:Weather?\n")


@pytest.mark.parametrize(
    ("status", "end"), [("incomplete", "assistant:Rain"), ("completed", "assistant:Rain\n")]
)
async def test_an_answer_that_was_cut_is_gone_on_with_and_after_a_whole_one_comes_another(
    status: str, end: str
) -> None:
    async with asking(" and wind.") as (client, front):
        last: Any = {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": status,
            "content": [{"type": "output_text", "text": "Rain", "annotations": []}],
        }
        answer = await client.responses.create(
            model=MODEL, input=[{"role": "user", "content": "Weather?"}, last]
        )
    assert answer.output_text.strip() == "and wind."
    assert bytes(front.source.requests[0].token_ids).decode().endswith(end)


async def test_a_response_that_is_cut_is_incomplete_and_a_large_one_is_read_elsewhere() -> None:
    async with asking("Hello", is_whole=False) as (client, _):
        answer = await client.responses.create(
            model=MODEL, input="a " * 20_000, max_output_tokens=5
        )
    assert answer.status == "incomplete" and answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"input": [{"type": "web_search_call"}]}, "input[0]"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"truncation": "auto"}, "truncation"),
        ({"input": [{"type": "function_call", "call_id": "1", "name": "f"}]}, "input"),
        ({"input": [{"type": "reasoning", "id": "rs_1", "summary": []}]}, "input"),
        ({"extra_body": {"strange": 1}}, "strange"),
        ({"extra_body": {"max_tokens": 1}}, "max_tokens"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"text": {"format": {"type": "strange"}}}, "text.format"),
        ({"text": {"format": SCHEMA | {"schema": {"not": {}}}}}, "text.format.schema"),
        ({"input": []}, "input"),
        ({"input": [{"type": "message", "role": "king", "content": "x"}]}, "input[].role"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[].call_id"),
        ({"input": [{**CALLED, "arguments": "x"}, RESULT]}, "input[].arguments"),
        ({"tools": [WEATHER[0] | {"name": "!"}]}, "tools[0].name"),
        ({"tools": [STRICT | {"parameters": {"not": {}}}]}, "tools[0].parameters"),
    ],
)
async def test_what_is_not_served_is_refused_by_name(changes: dict[str, Any], param: str) -> None:
    async with asking("x") as (client, front):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(**{"model": MODEL, "input": "Hi", **changes})
    assert refused.value.param == param and not front.source.requests
    assert param in refused.value.message


async def test_a_stream_that_fails_says_so_in_its_last_event() -> None:
    script = fails(WorkerLost("gone"), after="Hel")
    async with running_front(script) as front, client_of(front) as client:
        stream = await client.responses.create(model=MODEL, input="Hi", stream=True)
        events: list[Any] = [event async for event in stream]
    assert events[-1].type == "response.failed"
    assert events[-1].response.error.code == "worker_lost"


@pytest.mark.parametrize("after", ["", "Hel"])
def test_a_stream_that_fails_has_its_beginning_whether_or_not_a_delta_came(after: str) -> None:
    """In line a stream may have had nothing but pings."""
    envelope = Envelope(id="resp-1", model=MODEL, fingerprint="fp")
    telling = ResponseTelling({}, envelope, Parsing())
    usage = UsageBody(0, 0, 0, PromptTokensDetails(0))
    told = telling.begin(usage) + telling.take([Content(after)]) if after else b""
    told += telling.failed(WorkerLost("gone"))
    lines = told.decode().splitlines()
    names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert names[:2] == ["response.created", "response.in_progress"]
    assert names[-1] == "response.failed" and names.count("response.created") == 1
    data = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    numbers = [each["sequence_number"] for each in data]
    assert numbers == list(range(len(numbers)))


def _told(answer: Any) -> list[Any]:
    items = [item.model_dump(exclude={"id", "call_id"}) for item in answer.output]
    for item in items:
        item.pop("parsed_arguments", None)
        for part in item.get("content") or []:
            part.pop("parsed", None)
    return [items, answer.status, answer.usage.output_tokens]
