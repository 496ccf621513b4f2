"""How an answer is parsed, by what its request says."""

from __future__ import annotations

from router.api.reading.schema import ChatMessage, ChatRequest
from router.api.reading.talk import parsing_of
from router.api.reading.tool_schema import FunctionDefinition, ToolDefinition
from tests.router.front_fakes import byte_model, tool_model

SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}
TOOLS = [ToolDefinition("function", FunctionDefinition("now"))]


def request(**wishes: object) -> ChatRequest:
    return ChatRequest(messages=[ChatMessage("user", "Hi")], **wishes)  # type: ignore[arg-type]


def test_nothing_is_looked_for_where_there_is_nothing_to_find() -> None:
    assert parsing_of(request(), byte_model()) is None
    assert parsing_of(request(tools=TOOLS, tool_choice="none"), byte_model()) is None


def test_a_thought_comes_before_a_given_form_which_has_no_room_for_calls() -> None:
    forms: tuple[dict[str, object], ...] = (
        {"response_format": {"type": "text"}},
        {"response_format": SCHEMA},
        {"structured_outputs": {"regex": "a"}},
    )
    for form in forms:
        found = parsing_of(request(**form), tool_model())
        assert found is not None and found.thoughts is not None and found.tools is None
        assert parsing_of(request(**form), tool_model(thinks="")) is None
        assert parsing_of(request(**form, reasoning_format="none"), tool_model()) is None
    found = parsing_of(request(response_format=SCHEMA, resumable=True), tool_model())
    assert found is None
    both = parsing_of(request(response_format=SCHEMA, tools=TOOLS), tool_model())
    assert both is not None and both.thoughts is not None and both.tools is not None
