"""From a chat's tools to the grammar of its answer: where a call is asked for, or kept strict.

Made before a large body's schemas are dropped; afterwards it travels in their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster.errors import InvalidRequest
from router.api.reading.schema import ChatRequest
from router.api.reading.talk import calls_once, has_form
from router.api.reading.tool_schema import FunctionDefinition, NamedChoice
from router.api.reading.tools import offered
from router.front.served_model import ServedModel
from router.grammar.call_grammar import CallGrammars, CallWish, call_grammars
from router.grammar.call_syntax import Function
from router.tools.answer_parser import Parsing

_WORDS = ("title", "description", "examples", "$comment")
"""For readers: a grammar has no room for them."""
_OF_NAMES = ("properties", "patternProperties", "$defs", "definitions")


def named_in(request: ChatRequest) -> str | None:
    """The one function that is to be called."""
    choice = request.tool_choice
    if isinstance(choice, NamedChoice) and choice.function is not None:
        return choice.function.name
    return None


def must_call(request: ChatRequest) -> bool:
    """The answer is a call, whatever else it could be."""
    return named_in(request) is not None or request.tool_choice == "required"


def called_form(
    request: ChatRequest, model: ServedModel, parsing: Parsing | None
) -> CallGrammars | None:
    """None: calls, if any, are as the model writes them. The request and its model were checked;
    `parsing` is how the answer will be read.
    Beside a form the grammar is that of answers that call. Raises InvalidRequest for what cannot be
    kept to, naming it."""
    functions, name = offered(request), named_in(request)
    calls = must_call(request) or (has_form(request) and bool(functions))
    if not calls and not any(each.strict for each in functions):
        return None
    manners = model.manners
    assert manners.tools is not None, "a model that is offered tools calls them in some way"
    if has_form(request) and not must_call(request) and manners.tools.bare:
        raise InvalidRequest(
            f"{model.name} begins calls as JSON, or a list, begins: response_format and "
            "structured_outputs leave no room for them; leave tools out, or send a tool_choice of "
            "none, required, or a function by name",
            param="tools",
        )
    if manners.thoughts is not None and request.reasoning_format == "none":
        raise InvalidRequest(
            "reasoning_format: none leaves thoughts in the content, where calls are looked for; "
            "leave it out beside a tool_choice that asks for calls, and beside strict functions",
            param="reasoning_format",
        )
    return call_grammars(
        CallWish(
            tools=manners.tools,
            functions=_functions(request, name, parsing or Parsing(), follows=must_call(request)),
            must_call=calls,
            only_one=name is not None or calls_once(request, model),
            special=manners.special,
            thoughts=manners.thoughts,
        )
    )


def _functions(
    request: ChatRequest, name: str | None, parsing: Parsing, *, follows: bool
) -> list[Function]:
    kinds = parsing.kinds
    tools = [tool.function for tool in request.tools or [] if tool.function is not None]
    return [
        _function(each, kinds.get(each.name, {}), f"tools[{index}].function.parameters", follows)
        for index, each in enumerate(tools)
        if name is None or each.name == name
    ]


def _function(
    function: FunctionDefinition, kinds: Mapping[str, frozenset[str]], param: str, follows: bool
) -> Function:
    is_kept = follows or function.strict
    schema = _of_object(function.parameters, param) if is_kept else {"type": "object"}
    return Function(name=function.name, schema=schema, kinds=kinds, param=param)


def _of_object(parameters: dict[str, Any] | None, param: str) -> dict[str, Any]:
    """No parameters are an empty object."""
    if not parameters:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    if parameters.get("type", "object") != "object":
        raise InvalidRequest(f"{param}.type must be object", param=param)
    return {**_without_words(parameters), "type": "object"}


def _without_words(schema: Any) -> Any:
    """The same without what says nothing of values; names of properties are no keywords."""
    if isinstance(schema, list):
        return [_without_words(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _OF_NAMES and isinstance(value, dict):
            kept[key] = {name: _without_words(each) for name, each in value.items()}
        elif key in ("enum", "const", "default"):
            kept[key] = value
        elif key not in _WORDS:
            kept[key] = _without_words(value)
    return kept
