"""What a chat says of tools: looked through, and as the template and the answer's parser need it.

Limits come first: number and names of tools, then bytes and nesting of their schemas.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from cluster.errors import InvalidRequest
from router.api.reading.nesting import check_depth
from router.api.reading.schema import ChatRendering, ChatRequest
from router.api.reading.tool_schema import FunctionDefinition, NamedChoice, ToolDefinition
from router.front.served_model import ServedModel
from router.tools.call_teller import MAX_NAME_CHARS

MAX_TOOLS = 128
MAX_TOOLS_BYTES = 512 * 1024
"""Of all tools of a body, as JSON: a million tokens of most models."""
MAX_SCHEMA_DEPTH = 32
_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME_CHARS}}}")
_SHOWN = MAX_NAME_CHARS + 6
"""Of a name, so that one that is too long does not look as if it were not."""
_WORDS = ("none", "auto", "required")


def checked_tools(tools: list[ToolDefinition]) -> list[FunctionDefinition]:
    """Raises InvalidRequest naming the tool at fault."""
    if len(tools) > MAX_TOOLS:
        raise InvalidRequest(f"tools has {len(tools)} entries; allowed: {MAX_TOOLS}", param="tools")
    functions = [_function(tool, f"tools[{i}]") for i, tool in enumerate(tools)]
    seen: set[str] = set()
    for index, function in enumerate(functions):
        where = f"tools[{index}].function"
        if function.name in seen:
            raise InvalidRequest(f"{where}.name is {function.name!r} a second time", param=where)
        seen.add(function.name)
        check_depth(function.parameters, f"{where}.parameters", MAX_SCHEMA_DEPTH)
    if (num_bytes := len(msgspec.json.encode(functions))) > MAX_TOOLS_BYTES:
        raise InvalidRequest(
            f"tools has {num_bytes} bytes; allowed: {MAX_TOOLS_BYTES}", param="tools"
        )
    return functions


def check_choice(request: ChatRequest) -> None:
    """Raises InvalidRequest for a `tool_choice` that names nothing there is."""
    choice = request.tool_choice
    if choice is None:
        return
    if isinstance(choice, NamedChoice):
        _check_named(choice, request.tools or [])
        return
    if choice not in _WORDS:
        raise InvalidRequest(
            f"tool_choice is {choice[:50]!r}; allowed: {', '.join(_WORDS)}, or a function by name",
            param="tool_choice",
        )
    if not request.tools and choice not in ("none", "auto"):
        raise InvalidRequest("tool_choice needs tools; send some", param="tool_choice")


def check_model_calls(model: ServedModel) -> None:
    """Raises InvalidRequest where no calls can come of tools."""
    if model.template is not None and "tools" not in model.template.takes:
        raise InvalidRequest(
            f"the chat template of {model.name} knows no tools; leave tools out, or start the "
            "router with --tool-format auto or hermes, which have them told in a text",
            param="tools",
        )
    if model.manners.tools is None:
        raise InvalidRequest(
            f"how {model.name} writes calls of tools is not known here; start the router with "
            "--tool-format",
            param="tools",
        )


def offered(request: ChatRequest | ChatRendering) -> list[FunctionDefinition]:
    """The tools that the model is to know: none where it must not call any."""
    if not request.tools or (isinstance(request, ChatRequest) and request.tool_choice == "none"):
        return []
    return [tool.function for tool in request.tools if tool.function is not None]


def as_given(function: FunctionDefinition) -> dict[str, Any]:
    """A tool as templates are given it."""
    known: dict[str, Any] = {"name": function.name, "description": function.description or ""}
    known["parameters"] = function.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": known}


def _function(tool: ToolDefinition, where: str) -> FunctionDefinition:
    if tool.type != "function":
        raise InvalidRequest(
            f"{where}.type is {tool.type[:50]!r}; only functions are supported",
            param=f"{where}.type",
        )
    if tool.function is None:
        raise InvalidRequest(f"{where}.function is missing", param=f"{where}.function")
    if _NAME.fullmatch(tool.function.name) is None:
        raise InvalidRequest(
            f"{where}.function.name is {tool.function.name[:_SHOWN]!r}; allowed: "
            f"1 to {MAX_NAME_CHARS} letters, digits, _ and -",
            param=f"{where}.function.name",
        )
    return tool.function


def _check_named(choice: NamedChoice, tools: list[ToolDefinition]) -> None:
    if choice.type != "function" or choice.function is None:
        raise InvalidRequest(
            f"tool_choice has type {choice.type[:50]!r}; only a function can be named",
            param="tool_choice",
        )
    names = [tool.function.name for tool in tools if tool.function is not None]
    if choice.function.name not in names:
        raise InvalidRequest(
            f"tool_choice names {choice.function.name[:_SHOWN]!r}, which is not among the tools",
            param="tool_choice",
        )
