"""What a body asks its answer to be: OpenAI's `response_format`, or vLLM's `structured_outputs`.

A schema is kept to whether or not `strict` is said: there is nothing less strict here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cluster.errors import InvalidRequest
from cluster.grammar import Grammar
from router.api.reading.schema import SamplingFields
from router.grammar.json_schema import schema_grammar
from router.grammar.lark import json_object_grammar
from router.grammar.schema_budget import Allowance
from router.grammar.structural_tag import structural_tag_grammar
from router.grammar.structured_outputs import StructuredOutputs, grammar_of

_FORMAT, _OUTPUTS = "response_format", "structured_outputs"


class NamedSchema(msgspec.Struct, forbid_unknown_fields=True):
    """OpenAI's `response_format.json_schema`; the description is for nobody here."""

    name: str
    schema: Any = None
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(msgspec.Struct, forbid_unknown_fields=True):
    """`response_format` of type `json_schema`."""

    type: str
    json_schema: NamedSchema


def grammar_in(request: SamplingFields, *, comparisons: Allowance | None = None) -> Grammar | None:
    """None: any text will do. `comparisons`: see `budget_of`. Raises InvalidRequest, naming the
    field at fault."""
    if request.response_format is None and request.structured_outputs is None:
        return None
    wanted = _of_format(request.response_format, comparisons)
    if request.structured_outputs is None:
        return wanted
    if wanted is not None:
        raise InvalidRequest(
            f"{_FORMAT} and {_OUTPUTS} both say what the answer is; send one of them",
            param=_OUTPUTS,
        )
    try:
        asked = msgspec.convert(request.structured_outputs, StructuredOutputs)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"Invalid value for {_OUTPUTS}: {error}", param=_OUTPUTS) from None
    return grammar_of(asked, param=_OUTPUTS, comparisons=comparisons)


def _of_format(asked: Any, comparisons: Allowance | None) -> Grammar | None:
    kind = asked.get("type") if isinstance(asked, dict) else None
    if asked is None or asked == {"type": "text"}:
        return None
    if asked == {"type": "json_object"}:
        return json_object_grammar(param=_FORMAT)
    if kind == "json_schema":
        return _of_schema(asked, comparisons)
    if kind == "structural_tag":
        return structural_tag_grammar(asked, param=_FORMAT, comparisons=comparisons)
    raise InvalidRequest(
        f"{_FORMAT} must have a type: text, json_object, json_schema or structural_tag, and "
        "nothing beside it that its type does not have",
        param=_FORMAT,
    )


def _of_schema(asked: Any, comparisons: Allowance | None) -> Grammar:
    try:
        wanted = msgspec.convert(asked, JsonSchemaFormat).json_schema
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"Invalid value for {_FORMAT}: {error}", param=_FORMAT) from None
    param = f"{_FORMAT}.json_schema.schema"
    if wanted.schema is None:
        raise InvalidRequest(f"{param} is missing", param=param)
    return schema_grammar(wanted.schema, param=param, comparisons=comparisons)
