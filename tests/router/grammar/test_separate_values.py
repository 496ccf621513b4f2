"""Calls whose values are written one by one, in Python and in FunctionGemma's syntax: what their
grammars let through is read as instances of the schema, and what they cannot write is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

import jsonschema
import pytest

from cluster.errors import InvalidRequest
from router.grammar.limits import MAX_SCHEMAS
from router.tools.answer_parser import Parsing
from router.tools.formats import FORMATS
from tests.router.grammar import calling
from tests.router.grammar.calling import grammars
from tests.router.grammar.own_schemas import OWN
from tests.router.tools.recorded_calls import gathered, parsed

OBJECTS = {
    name: schema
    for name, schema in OWN.items()
    if schema.get("type") == "object" and "properties" in schema
}
FOLLOWED = {"pythonic": 20, "gemma": 12}
"""Of the 30 at least."""


HUGE = re.compile(r"\de[+-]?\d{3}", re.IGNORECASE)
"""A number beyond all floats: no call in Python."""


def hidden(schema: Any) -> dict[str, Any]:
    """Where nobody looks who goes through schemas."""
    return {"properties": {"a": {"$ref": "#/properties/b/default"}, "b": {"default": schema}}}


def of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"f": {"type": "object", **schema}}


@pytest.mark.parametrize("family", FOLLOWED)
def test_what_is_written_for_schemas_of_our_own_is_read_as_their_instances(family: str) -> None:
    parsing, followed = Parsing(tools=FORMATS[family], names={"f"}), 0
    for name, schema in OBJECTS.items():
        try:
            grammar = grammars(family, schemas={"f": schema}, only_one=True).plain
        except InvalidRequest as error:
            assert error.param == "tools[0]"
            continue
        chance, answers = Random(f"{family} {name}"), list[str]()
        answers += [text for _ in range(4) if (text := calling.walked(grammar, chance))]
        answers = [text for text in answers if not HUGE.search(text)]
        for text in answers:
            parts, parser = parsed(parsing, [text])
            assert parser.has_called, text
            for _, arguments in gathered(parts)[0]:
                jsonschema.validate(arguments, schema)
        followed += bool(answers)
    assert followed >= FOLLOWED[family]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"properties": {"a-b": {}}}, "'a-b' is no name"),
        ({"properties": {"class": {}}}, "'class' is no name"),
        ({"properties": {"\ufb01": {}}}, "is no name"),
        ({"patternProperties": {"x": {}}}, "`patternProperties`"),
        ({"properties": {"a": {"not": {}}}}, "`not`"),
        ({"properties": {"a": {"$ref": "#/properties/b"}, "b": {}}}, "no definition"),
        ({"properties": {f"p{i}": {"$ref": "#/$defs/D"} for i in range(400)},
          "$defs": {"D": {"enum": ["x" * 500]}}}, "bytes of parameters"),
    ],
)  # fmt: skip
def test_what_cannot_stand_in_python_is_refused_by_name(schema: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as refused:
        grammars("pythonic", schemas=of(schema))
    assert refused.value.param == "tools[0]"


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"properties": {"a": {"type": "string", "pattern": "x"}}}, "`pattern` at #/a"),
        ({"properties": {"a": {"type": "string", "maxLength": 5}}}, "`maxLength`"),
        ({"properties": {"a": {"type": "array", "items": False}}}, "no value is valid"),
        ({"properties": {"a": {"prefixItems": [{}]}}}, "`prefixItems`"),
        ({"properties": {"a": {"allOf": [{"minimum": 1}, {"maximum": 2}]}}}, "`allOf`"),
        ({"properties": {"a": {"const": "<escape>"}}}, "no value can be written"),
        ({"properties": {"a<escape>": {}}}, "cannot be written"),
        ({"properties": {"a": {"type": "array", "minItems": 3, "maxItems": 2}}}, "no length"),
        ({"properties": {"a": {"type": "array", "minItems": 9999, "maxItems": 9999}}}, "items"),
        ({"properties": {"a": {"type": "text"}}}, "'text'"),
        ({"properties": {"a": {"type": []}}}, "names none"),
        ({"properties": {"a": {"enum": 5}}}, "no list"),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, "no definition"),
        ({"required": ["a"]}, "no property"),
        (hidden({"anyOf": 5}), "no list of schemas"),
        (hidden({"anyOf": [{"$ref": []}]}), "no text"),
        (hidden({"properties": 5}), "must be an object"),
    ],
)  # fmt: skip
def test_what_gemma_cannot_write_is_refused_by_name(schema: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as refused:
        grammars("gemma", schemas=of(schema))
    assert refused.value.param == "tools[0]"


def chained(num_links: int, link: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """A property that leads to a text in so many links, each made around a `$ref` to the next."""
    defs = {f"a{i}": link({"$ref": f"#/$defs/a{i + 1}"}) for i in range(num_links)}
    defs[f"a{num_links}"] = {"type": "string"}
    return of({"properties": {"q": {"$ref": "#/$defs/a0"}}, "required": ["q"], "$defs": defs})


def in_objects(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": schema}, "required": ["x"]}


def in_branches(schema: dict[str, Any]) -> dict[str, Any]:
    for _ in range(13):
        schema = {"anyOf": [schema]}
    return schema


@pytest.mark.parametrize("family", FORMATS)
def test_a_chain_within_all_limits_is_taken_however_deep_it_goes(family: str) -> None:
    assert grammars(family, schemas=chained(70, in_branches))
    assert grammars(family, schemas=chained(70, in_objects))


def test_what_a_chain_of_objects_leads_to_is_written() -> None:
    grammar = grammars("gemma", schemas=chained(3, in_objects), only_one=True).plain
    parsing, chance, texts = Parsing(tools=FORMATS["gemma"], names={"f"}), Random("chain"), 0
    for _ in range(40):
        answer = calling.walked(grammar, chance)
        for _, arguments in gathered(parsed(parsing, [answer])[0])[0] if answer else []:
            jsonschema.validate(arguments, chained(3, in_objects)["f"])
            texts += "<escape>" in (answer or "")
    assert texts


def test_a_chain_with_more_rules_than_a_grammar_may_have_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="rules; allowed: 256"):
        grammars("gemma", schemas=chained(250, in_objects))


def test_references_into_each_other_cost_no_more_than_a_schema_may_have() -> None:
    inner: dict[str, Any] = {"type": "object", "properties": {}}
    for _ in range(45):
        inner = {"type": "object", "properties": {"a": inner}}
    place, refs = "#/properties/s", dict[str, Any]()
    for depth in range(45):
        refs[f"r{depth}"] = {"$ref": place}
        place += "/properties/a"
    with pytest.raises(InvalidRequest, match=f"allowed: {MAX_SCHEMAS}"):
        grammars("gemma", schemas=of({"properties": {"s": inner, **refs}}))
