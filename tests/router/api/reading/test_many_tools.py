"""Bodies with many tools: read by a text worker, what is left of them by the event loop."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cluster.errors import InvalidRequest, RequestTooLarge
from router.api.answers.parsed_chat_shape import ParsedChatShape
from router.api.reading.chat_reader import ChatReader
from router.api.reading.schema import ChatRequest
from router.api.reading.talk import parsing_of
from router.api.reading.tool_kinds import MAX_KEPT_BYTES, MAX_TYPE_STEPS, kinds_of
from router.api.reading.tool_schema import FunctionDefinition
from router.api.reading.tools import MAX_TOOLS_BYTES
from router.front.text_work import Door
from router.text_worker.desk import TextDesk
from tests.router.front_fakes import tool_model
from tests.router.grammar.hostile import led_to_often

CONTEXT_TOKENS = 1 << 20
KIND = {"type": "integer", "description": "how many of them there are, at the most " * 4}
TEXT = {**KIND, "type": "string"}


def tool(index: int, kind: dict[str, Any], num_parameters: int) -> dict[str, Any]:
    properties = {f"parameter_number_{i}": kind for i in range(num_parameters)}
    parameters = {"type": "object", "properties": properties}
    name = f"a_tool_of_some_server_{index}"
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def body(kind: dict[str, Any], num_tools: int, num_parameters: int, **more: object) -> bytes:
    tools = [tool(index, kind, num_parameters) for index in range(num_tools)]
    chat = {"messages": [{"role": "user", "content": "Hi"}], "tools": tools, **more}
    return msgspec.json.encode(chat)


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "pythonic", "gemma"])
@pytest.mark.parametrize("kind", [KIND, TEXT], ids=["integers", "texts"])
def test_eighty_tools_of_ten_parameters_are_read(name: str, kind: dict[str, Any]) -> None:
    asked = body(kind, 80, 10)
    assert 128 * 1024 < len(asked) < MAX_TOOLS_BYTES
    model = tool_model(name)
    read = TextDesk(model).read(Door.CHAT, asked, CONTEXT_TOKENS)
    shape = ChatReader(model).join(read.rest, read.prompts).shape
    assert isinstance(shape, ParsedChatShape)


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder"])
def test_types_of_a_large_body_are_known_as_those_of_a_small_one(name: str) -> None:
    kinds = {"type": ["string", "null"]}
    wanted = {"parameter_number_0": frozenset({"string", "null"})}
    model = tool_model(name)
    large = body(kinds, 1, 1, user="x")
    rest = msgspec.json.decode(ChatReader(model).split(large).rest)["request"]
    for each in (large, msgspec.json.encode(rest)):
        parsing = parsing_of(msgspec.json.decode(each, type=ChatRequest), model)
        assert parsing is not None
        assert parsing.kinds == {"a_tool_of_some_server_0": wanted}


def test_too_many_types_are_refused_by_their_name() -> None:
    desk = TextDesk(tool_model("qwen3_coder"))
    numbers = {"type": "number"}
    with pytest.raises(InvalidRequest, match=f"types other than string; allowed: {MAX_KEPT_BYTES}"):
        desk.read(Door.CHAT, body(numbers, 100, 40), CONTEXT_TOKENS)
    TextDesk(tool_model("hermes")).read(Door.CHAT, body(numbers, 100, 40), CONTEXT_TOKENS)


def test_a_prediction_of_many_bytes_is_read_and_all_else_has_its_limit() -> None:
    desk = TextDesk(tool_model())
    prediction = {"type": "content", "content": "\u4e2d" * 16_000}
    assert desk.read(Door.CHAT, body(TEXT, 80, 10, prediction=prediction), CONTEXT_TOKENS)
    with pytest.raises(RequestTooLarge, match="beside its prompt, tools and prediction"):
        desk.read(Door.CHAT, body(TEXT, 1, 1, metadata={"a": "x" * 33_000}), CONTEXT_TOKENS)


def test_a_long_chain_of_refs_leads_to_its_types_and_a_circle_to_none() -> None:
    schema = led_to_often([{"$ref": "#/c0"}, {"type": "null"}], 400)
    schema["properties"]["round"] = {"$ref": "#/round"}
    schema["round"] = {"$ref": "#/properties/round"}
    kinds = kinds_of([FunctionDefinition("f", None, schema)])["f"]
    assert kinds.pop("round") == frozenset()
    assert set(kinds.values()) == {frozenset({"integer", "null"})} and len(kinds) == 700


@pytest.mark.parametrize("reads_large", [True, False])
def test_types_that_are_led_to_over_and_over_are_refused_with_the_limit(reads_large: bool) -> None:
    schema = led_to_often([{"type": f"t{i}"} for i in range(200)])
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    chat = {"messages": [{"role": "user", "content": "Hi"}], "tools": tools}
    reader, asked = ChatReader(tool_model("qwen3_coder")), msgspec.json.encode(chat)
    with pytest.raises(InvalidRequest, match=f"tools has over {MAX_TYPE_STEPS} parameters"):
        reader.split(asked) if reads_large else reader.read(asked)
    assert ChatReader(tool_model("pythonic")).read(asked)
