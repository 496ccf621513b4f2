"""A real model that was never told of tools calls them through a whole fleet: its prompt, with the
tools as text, is computed by one worker, and another makes the calls by a grammar."""

import json
import random

import jsonschema
import openai
import pytest

from cluster.models.cache.store import ModelStore
from cluster.sampling import SamplingParams
from cluster.wire import sampling_to_wire
from router.api.answers.gathered_parts import GatheredParts
from router.api.reading.chat_reader import ChatReader
from router.front.model_loading import load_text_side
from router.front.prompt_encoding import encode_prompt
from router.tools.answer_parser import AnswerParser, Parsing
from router.tools.formats import HERMES
from tests.fleet.put_directly import greedy_submit, members_of, submit_alone
from tests.fleet.support import fleet_channel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def function(name, description, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    schema |= {"additionalProperties": False}
    told = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": told}


CITY = {"type": "string", "maxLength": 24}
WEATHER = function(
    "get_weather",
    "Tells the weather in a city",
    city=CITY,
    days={"type": "integer", "minimum": 1, "maximum": 7},
    unit={"enum": ["celsius", "fahrenheit"]},
)
TIME = function("get_time", "Tells what time it is in a city", city=CITY)
TOOLS = {each["function"]["name"]: each["function"]["parameters"] for each in (WEATHER, TIME)}
ASK = [{"role": "user", "content": "What is the weather in Paris over the next 3 days?"}]
NAMED = {"type": "function", "function": {"name": "get_time"}}


def called(index, name, **arguments):
    told = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{index}", "type": "function", "function": told}


def gave(index, text):
    return {"role": "tool", "tool_call_id": f"call_{index}", "content": text}


def both(first, days, second):
    text = f"What is the weather in {first} for {days} days, and what time is it in {second}?"
    return {"role": "user", "content": text}


SHOWN = [
    both("London", 2, "Madrid"),
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            called(1, "get_weather", city="London", days=2, unit="celsius"),
            called(2, "get_time", city="Madrid"),
        ],
    },
    gave(1, "rain"),
    gave(2, "10:30"),
    {"role": "assistant", "content": "It rains in London, and it is 10:30 in Madrid."},
    both("Paris", 3, "Rome"),
]
"""A small model that was shown once how two calls end makes two, and ends."""


@pytest.fixture
def client(pair_fleet):
    with openai.OpenAI(base_url=f"{pair_fleet.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def asked(client, messages=ASK, **wishes):
    wishes = {"tools": [WEATHER, TIME], "temperature": 0, "max_tokens": 300, **wishes}
    return client.chat.completions.create(model="smollm2", messages=messages, **wishes)


def checked(calls):
    """Names, and arguments that their schemas allow."""
    told = [(call.function.name, json.loads(call.function.arguments)) for call in calls]
    for name, arguments in told:
        jsonschema.validate(arguments, TOOLS[name])
    return told


def test_a_required_call_of_one_function_is_made_and_its_result_is_understood(client):
    reply = asked(client, tool_choice="required", parallel_tool_calls=False)
    choice = reply.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    ((name, arguments),) = checked(choice.message.tool_calls)
    assert name == "get_weather" and arguments["city"].startswith("Paris")
    result = {"role": "tool", "tool_call_id": choice.message.tool_calls[0].id, "content": "sunny"}
    history = [*ASK, choice.message.model_dump(exclude_none=True), result]
    after = asked(client, history, tool_choice="none", max_tokens=60)
    assert after.choices[0].message.tool_calls is None
    assert "sunny" in after.choices[0].message.content.lower()


def test_a_call_by_name_is_of_that_function_whatever_was_asked(client):
    choice = asked(client, tool_choice=NAMED).choices[0]
    assert choice.finish_reason == "stop"
    assert [name for name, _ in checked(choice.message.tool_calls)] == ["get_time"]


def test_calls_of_two_functions_come_in_one_answer(client):
    choice = asked(client, SHOWN, tool_choice="required").choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    assert [name for name, _ in checked(choice.message.tool_calls)] == ["get_weather", "get_time"]
    assert len({call.id for call in choice.message.tool_calls}) == 2


def test_a_stream_tells_arguments_as_they_are_written_and_the_same_calls(client):
    whole = asked(client, SHOWN, tool_choice="required").choices[0].message.tool_calls
    chunks = list(asked(client, SHOWN, tool_choice="required", stream=True))
    entries = [each for chunk in chunks for each in chunk.choices[0].delta.tool_calls or []]
    for index, call in enumerate(whole):
        first, *rest = [each for each in entries if each.index == index]
        assert first.id and first.type == "function" and first.function.name == call.function.name
        assert all(each.id is None and each.function.name is None for each in rest)
        pieces = [each.function.arguments for each in (first, *rest)]
        assert "".join(pieces) == call.function.arguments and len(pieces) > 1
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


async def test_the_calls_are_the_same_where_the_prompt_s_kv_has_travelled_for_sure(
    pair_fleet, client
):
    whole = asked(client, SHOWN, tool_choice="required").choices[0].message.tool_calls
    model = load_text_side(ModelStore().resolve("smollm2"), "smollm2", lambda: 2048)
    body = {"messages": SHOWN, "tools": [WEATHER, TIME], "tool_choice": "required"}
    plan = ChatReader(model).read(json.dumps(body).encode())
    prompt = encode_prompt(model, plan.prompts[0], max_context_tokens=2048)
    async with fleet_channel(pair_fleet.grpc_address) as router:
        members = {member.role: member for member in await members_of(router)}
    submit = greedy_submit(prompt, 300, [members["prefill"]], random.Random(1), timeout_s=300)
    grammar = plan.wishes.sampling.grammar
    sampling = SamplingParams(max_tokens=300, temperature=0.0, grammar=grammar)
    submit.sampling.CopyFrom(sampling_to_wire(sampling))
    async with fleet_channel(members["decode"].address) as channel:
        tokens, ended = await submit_alone(channel, members["decode"], submit)
    assert ended.timing.prefill_worker == "prefill-0" and ended.timing.kv_bytes
    text = b"".join(map(model.tokenizer.token_bytes, tokens[:-1])).decode()
    told = GatheredParts()
    told.add(AnswerParser(Parsing(tools=HERMES, names=TOOLS.keys())).finish(text))
    assert [(call.name, call.arguments) for call in told.calls] == [
        (call.function.name, call.function.arguments) for call in whole
    ]


def test_without_being_asked_for_calls_it_answers_in_text_or_calls_what_there_is(client):
    choice = asked(client, tool_choice="auto").choices[0]
    assert choice.finish_reason in ("stop", "tool_calls")
    assert {call.function.name for call in choice.message.tool_calls or []} <= set(TOOLS)
