"""What a body asks its answer to be, in OpenAI's words and in vLLM's."""

from __future__ import annotations

import json
from typing import Any

import httpx
import msgspec
import pytest

from cluster.grammar import GrammarKind
from router.api.reading.chat_reader import ChatReader
from router.front.generation_request import TokenPrompt
from router.grammar.json_schema import schema_in
from router.grammar.lark import choices_in
from tests.router.front_fakes import Front, byte_model
from tests.router.grammar.matching import accepts

PATHS = {
    "/v1/completions": {"prompt": "x"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
}
SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {}}, "required": ["b"]}
NAMED = {"name": "thing", "strict": True, "schema": SCHEMA}
TAG: dict[str, Any] = {
    "type": "structural_tag",
    "triggers": ["<f="],
    "structures": [
        {"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"},
        {"begin": "<f=b>", "schema": {"type": "boolean"}, "end": "</f>"},
    ],
}


async def post(front: Front, path: str, **fields: object) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.post(f"{front.url}{path}", json={**PATHS[path], **fields})


def asked_of(front: Front) -> Any:
    return front.source.requests[-1].sampling.grammar


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("strict", [True, False, None])
async def test_a_schema_is_kept_to_whatever_strict_says(front, path, strict):
    named = {**NAMED, "strict": strict, "description": "of no effect"}
    answer = await post(front, path, response_format={"type": "json_schema", "json_schema": named})
    assert answer.status_code == 200
    grammar = asked_of(front)
    assert grammar.kind is GrammarKind.JSON_SCHEMA and schema_in(grammar)[0] == SCHEMA
    assert list(schema_in(grammar)[0]["properties"]) == ["b", "a"]


@pytest.mark.parametrize("path", PATHS)
async def test_text_asks_for_nothing_and_an_object_for_any(front, path):
    assert (await post(front, path, response_format={"type": "text"})).status_code == 200
    assert asked_of(front) is None
    assert (await post(front, path, response_format={"type": "json_object"})).status_code == 200
    assert asked_of(front).kind is GrammarKind.JSON_OBJECT


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("constraint", "kind"),
    [
        ({"json": SCHEMA}, GrammarKind.JSON_SCHEMA),
        ({"json": '{"type": "null"}'}, GrammarKind.JSON_SCHEMA),
        ({"regex": "a+"}, GrammarKind.REGEX),
        ({"choice": ["a", "b"]}, GrammarKind.CHOICE),
        ({"grammar": 'start: "a"'}, GrammarKind.LARK),
        ({"json_object": True}, GrammarKind.JSON_OBJECT),
        ({"structural_tag": json.dumps(TAG)}, GrammarKind.STRUCTURAL_TAG),
    ],
)
async def test_each_of_vllms_constraints_is_followed(front, path, constraint, kind):
    assert (await post(front, path, structured_outputs=constraint)).status_code == 200
    assert asked_of(front).kind is kind


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": TAG},
        {"structured_outputs": {"structural_tag": TAG}},
        {"structured_outputs": {"structural_tag": json.dumps(TAG)}},
    ],
    ids=["response_format", "structured_outputs", "a text of one"],
)
async def test_a_structural_tag_comes_to_the_worker_whole_by_either_name(front, path, fields):
    assert (await post(front, path, **fields)).status_code == 200
    grammar = asked_of(front)
    assert grammar.kind is GrammarKind.STRUCTURAL_TAG
    for text in ("free", "so <f=a>12</f> and <f=b>true</f>."):
        assert accepts(grammar, text), text
    for text in ("<f=a>true</f>", "<f=c>1</f>", "<f=b>true"):
        assert not accepts(grammar, text), text


async def test_choices_and_whitespace_are_the_clients(front):
    await post(front, "/v1/completions", structured_outputs={"choice": ["yes", "no"]})
    assert choices_in(asked_of(front)) == ["yes", "no"]
    options = {"json": SCHEMA, "disable_any_whitespace": True}
    options["disable_additional_properties"] = True
    await post(front, "/v1/completions", structured_outputs=options)
    schema, whitespace = schema_in(asked_of(front))
    assert schema["additionalProperties"] is False
    assert whitespace == {"whitespace_flexible": False}


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "two constraints": (
        {"structured_outputs": {"regex": "a", "choice": ["a"]}},
        "structured_outputs",
        "regex and choice",
    ),
    "none": ({"structured_outputs": {}}, "structured_outputs", "exactly one"),
    "an object that is not asked for": (
        {"structured_outputs": {"json_object": False}},
        "structured_outputs",
        "exactly one",
    ),
    "an unknown one": ({"structured_outputs": {"xml": 1}}, "structured_outputs", "xml"),
    "no JSON": ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "no JSON"),
    "no choices": ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "empty"),
    "whitespace of an expression": (
        {"structured_outputs": {"regex": "a", "whitespace_pattern": " "}},
        "structured_outputs",
        "not of regex",
    ),
    "a backend": (
        {"structured_outputs": {"regex": "a", "backend": "xgrammar"}},
        "structured_outputs",
        "backend",
    ),
    "both words": (
        {
            "structured_outputs": {"regex": "a"},
            "response_format": {"type": "json_object"},
        },
        "structured_outputs",
        "send one of them",
    ),
    "no schema": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        "response_format.json_schema.schema",
        "missing",
    ),
    "no name": (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
        "response_format",
        "name",
    ),
    "a keyword": (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"not": {}}},
            }
        },
        "response_format.json_schema.schema",
        "`not` at #",
    ),
    "an expression that looks ahead": (
        {"structured_outputs": {"regex": "(?=a)"}},
        "structured_outputs.regex",
        "look-ahead",
    ),
    "a length that it may not have": (
        {"structured_outputs": {"regex": "a"}, "min_tokens": 1},
        "min_tokens",
        "leave min_tokens out",
    ),
    "a length beside a schema": (
        {
            "response_format": {"type": "json_schema", "json_schema": NAMED},
            "min_tokens": 1,
        },
        "min_tokens",
        "does not go with a json_schema to follow",
    ),
    "xgrammar's newer tag": (
        {"response_format": {"type": "structural_tag", "format": {"type": "any_text"}}},
        "response_format",
        "`format` is not supported; use structures and triggers",
    ),
    "the newer tag as a text": (
        {"structured_outputs": {"structural_tag": '{"type":"structural_tag","format":{}}'}},
        "structured_outputs.structural_tag",
        "`format` is not supported",
    ),
    "a tag of no triggers": (
        {"response_format": {"type": "structural_tag", "structures": TAG["structures"]}},
        "response_format",
        "missing required field `triggers`",
    ),
    "a field of a tag that nobody knows": (
        {"response_format": {**TAG, "at_least_one": True}},
        "response_format",
        "at_least_one",
    ),
    "a part that no trigger begins": (
        {"response_format": {**TAG, "triggers": ["<g="]}},
        "response_format",
        "'<f=a>' begins with 0 of the triggers",
    ),
    "a keyword in a tag": (
        {
            "response_format": {
                **TAG,
                "structures": [{"begin": "<f=", "schema": {"not": {}}, "end": ""}],
            }
        },
        "response_format",
        "`not` at #",
    ),
    "a tag that is no JSON": (
        {"structured_outputs": {"structural_tag": "<f="}},
        "structured_outputs.structural_tag",
        "no JSON",
    ),
    "a tag beside a constraint": (
        {"response_format": TAG, "structured_outputs": {"regex": "a"}},
        "structured_outputs",
        "send one of them",
    ),
    "an end that it may not have": (
        {"structured_outputs": {"regex": "a"}, "ignore_eos": True},
        "ignore_eos",
        "ends where that does",
    ),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", WRONG)
async def test_what_cannot_be_followed_is_refused_by_its_name(front, path, name):
    fields, param, words = WRONG[name]
    answer = await post(front, path, **fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param), error
    assert words in error["message"] and front.source.requests == []


@pytest.mark.parametrize("name", ["guided_json", "guided_regex", "guided_choice"])
async def test_old_names_are_told_what_to_write(front, name):
    answer = await post(front, "/v1/completions", **{name: "x"})
    assert answer.status_code == 400
    assert "structured_outputs" in answer.json()["error"]["message"]


def test_a_body_that_a_text_worker_has_read_keeps_its_format():
    asked = {"response_format": {"type": "json_schema", "json_schema": NAMED}}
    body = msgspec.json.encode({**PATHS["/v1/chat/completions"], **asked})
    reader = ChatReader(byte_model())
    whole = reader.read(body).wishes.sampling.grammar
    plan = reader.join(reader.split(body).rest, [TokenPrompt([1])])
    assert plan.wishes.sampling.grammar == whole and whole is not None
