"""Which JSON types the parameters of tools may have: what their raw text is read by.

Every schema of a body is looked at once, however many `$ref`s lead to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cluster.errors import InvalidRequest
from router.api.reading.tool_schema import FunctionDefinition, ToolDefinition
from router.grammar.json_schema import target_of
from router.tools.answer_parser import Parsing
from router.tools.formats import RawValues
from router.tools.tagged_calls import Kinds

MAX_KEPT_BYTES = 64 * 1024
"""Of what is needed of tools once a large body's prompt is made: 0.7 ms of the event loop."""
MAX_TYPE_STEPS = 20_000
"""Parameters, alternatives and types of a request's tools: 10 ms of the event loop."""


def kinds_of(functions: list[FunctionDefinition]) -> Kinds:
    """See Kinds. Raises InvalidRequest for tools with too many."""
    budget = _TypeBudget()
    return {each.name: _Types(each.parameters or {}, budget).of_each() for each in functions}


def compact(
    tools: list[ToolDefinition] | None, parsing: Parsing | None
) -> list[ToolDefinition] | None:
    """What is needed of them once the prompt is made, to parse the answer so: names, and kinds of
    parameters that are not just texts. Where few models need these, none of those that are too
    many."""
    if not tools:
        return tools
    kept = _with_kinds(tools, {} if parsing is None else parsing.kinds)
    form = None if parsing is None else parsing.tools
    if form is None or form.raw_values is RawValues.ALWAYS or _num_bytes(kept) <= MAX_KEPT_BYTES:
        return kept
    return _with_kinds(tools, {})


def _with_kinds(tools: list[ToolDefinition], kinds: Kinds) -> list[ToolDefinition]:
    names = [tool.function.name for tool in tools if tool.function is not None]
    return [
        ToolDefinition("function", FunctionDefinition(name, None, _schema_of(kinds.get(name))))
        for name in names
    ]


def _num_bytes(tools: list[ToolDefinition]) -> int:
    return len(msgspec.json.encode(tools))


def kept_bytes(tools: list[ToolDefinition] | None) -> int:
    """That `compact` tools have as JSON. Raises InvalidRequest for too many."""
    if not tools:
        return 0
    num_bytes = _num_bytes(tools)
    if num_bytes > MAX_KEPT_BYTES:
        raise InvalidRequest(
            f"tools has {num_bytes} bytes of names and of types other than string; allowed: "
            f"{MAX_KEPT_BYTES}",
            param="tools",
        )
    return num_bytes


@dataclass(slots=True)
class _TypeBudget:
    """Of all tools of one request."""

    num_steps: int = 0

    def spend(self, num_steps: int) -> None:
        """Raises InvalidRequest beyond MAX_TYPE_STEPS."""
        self.num_steps += num_steps
        if self.num_steps > MAX_TYPE_STEPS:
            raise InvalidRequest(
                f"tools has over {MAX_TYPE_STEPS} parameters, alternatives and types together, "
                "those that $ref leads to counted each time; send fewer, or simpler ones",
                param="tools",
            )


@dataclass(slots=True)
class _Types:
    """Of one tool's parameters."""

    root: dict[str, Any]
    budget: _TypeBudget
    found: dict[str, Any] = field(default_factory=dict)
    """By target of `$ref`."""
    types: dict[int, frozenset[str]] = field(default_factory=dict)
    """By a schema's id; they live as long as the root."""

    def of_each(self) -> dict[str, frozenset[str]]:
        """By parameter."""
        properties = self.root.get("properties")
        if not isinstance(properties, dict):
            return {}
        return {name: self._of(each) for name, each in properties.items()}

    def _of(self, schema: Any) -> frozenset[str]:
        schema = target_of(schema, self.root, self.found)
        if not isinstance(schema, dict):
            self.budget.spend(1)
            return frozenset()
        types = self.types.get(id(schema))
        if types is None:
            types = self.types[id(schema)] = self._stated(schema)
        self.budget.spend(1 + len(types))
        return types

    def _stated(self, schema: dict[str, Any]) -> frozenset[str]:
        """Of a choice of schemas all of theirs."""
        stated, enum = schema.get("type"), schema.get("enum")
        types = {stated} if isinstance(stated, str) else set()
        types |= {each for each in self._list(stated) if isinstance(each, str)}
        for branch in (*self._list(schema.get("anyOf")), *self._list(schema.get("oneOf"))):
            branch = target_of(branch, self.root, self.found)
            if isinstance(branch, dict) and isinstance(branch.get("type"), str):
                types.add(branch["type"])
        if not types:
            types |= {"string" for each in self._list(enum) if isinstance(each, str)}
        return frozenset(types)

    def _list(self, value: Any) -> list[Any]:
        """Paid for by its length."""
        listed = value if isinstance(value, list) else []
        self.budget.spend(len(listed))
        return listed


def _schema_of(kinds: Mapping[str, frozenset[str]] | None) -> dict[str, Any] | None:
    """That `kinds_of` reads them from again."""
    if kinds is None:
        return None
    types = {name: sorted(types) for name, types in kinds.items() if types - {"string"}}
    return {
        "properties": {
            name: {"type": each[0] if len(each) == 1 else each} for name, each in types.items()
        }
    }
