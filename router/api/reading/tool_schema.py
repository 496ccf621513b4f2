"""Tools in bodies of chats, as OpenAI's clients send them."""

from __future__ import annotations

from typing import Any

import msgspec


class FunctionDefinition(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`parameters` is a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolDefinition(msgspec.Struct, forbid_unknown_fields=True):
    """Only functions are served."""

    type: str
    function: FunctionDefinition | None = None


class FunctionName(msgspec.Struct, forbid_unknown_fields=True):
    """Of the one function that is to be called."""

    name: str


class NamedChoice(msgspec.Struct, forbid_unknown_fields=True):
    """A `tool_choice` that is no word."""

    type: str
    function: FunctionName | None = None
    allowed_tools: Any = None


class CalledFunction(msgspec.Struct, forbid_unknown_fields=True):
    """`arguments` is a text with a JSON object in it."""

    name: str
    arguments: str = ""


class MessageCall(msgspec.Struct, forbid_unknown_fields=True):
    """A call of an earlier answer, as that answer had it."""

    function: CalledFunction
    id: str | None = None
    type: str | None = None
    index: int | None = None
