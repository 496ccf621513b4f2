"""Grammars of calls: they accept what each family writes, and what they accept is a call that its
reader reads and its schema allows."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import jsonschema
import pytest

from cluster.errors import InvalidRequest
from cluster.grammar import Grammar
from cluster.models.text.grammars import compiled
from router.grammar.limits import MAX_SCHEMAS
from router.tools.formats import FORMATS
from tests.router.grammar import calling
from tests.router.grammar.calling import FORCED, SCHEMAS, THOUGHTS, functions, grammars
from tests.router.grammar.matching import accepts
from tests.router.tools.recorded_calls import RECORDED, gathered, parsed

LOOSE: dict[str, Any] = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "exact": {"type": ["boolean", "null"]},
            "where": {"type": "object"},
        },
        "required": ["city"],
    },
    "write-file": {"type": "object", "properties": {"text": {"type": "string"}}},
    "now": {"type": "object", "properties": {}},
}
OTHERWISE = {
    '<tool_call>{"id": 7',  # other keys
    '<tool_call>{"name": "weather", "arguments": "{',  # JSON in a string
    '<tool_call>{"name": "now"}',  # no arguments
    "I will.\n\n<tool_call>\n<function=weather>",  # True is no JSON
    "<tool_call>\n<function=write-file>",  # a second call without its word
    '<|python_tag|>{"type": "function"',  # other keys
    "Now. [TOOL_CALLS]weather[ARGS]",  # written so only where [ARGS] is a token
    "[TOOL_CALLS]weather[CALL_ID]",  # as the one before
}
"""Beginnings of what readers read as well, and no grammar writes."""
SPECIAL = (False, True)


def _canonical(family: str) -> list[Any]:
    return [
        each
        for each in RECORDED
        if each.format == family and not any(each.text.startswith(text) for text in OTHERWISE)
    ]


@pytest.mark.parametrize("family", FORCED)
def test_what_was_recorded_of_a_family_is_accepted_and_other_names_are_not(family: str) -> None:
    must = grammars(family, schemas=LOOSE, thinks=True).plain
    may = grammars(family, schemas=LOOSE, thinks=True, must_call=False).plain
    others = {name: LOOSE[name] for name in ("write-file",)}
    other = grammars(family, schemas=others, thinks=True).plain
    for each in _canonical(family):
        assert accepts(may, each.text), each.text
        assert accepts(must, each.text) is not bool(each.content), each.text
        assert not accepts(other, each.text), each.text
    assert accepts(may, "It is sunny.") and not accepts(must, "It is sunny.")
    assert not accepts(must, "") and accepts(may, "")


def test_each_family_has_a_recording_that_is_accepted() -> None:
    written = {family for family in FORCED if _canonical(family)}
    assert written == set(FORCED) - {"qwen3_coder"}
    tagged = (
        "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n"
        "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>"
    )
    grammar = grammars("qwen3_coder", schemas=LOOSE).plain
    assert accepts(grammar, tagged) and not accepts(grammar, tagged.replace("2", "two"))
    assert not accepts(grammar, tagged.replace("weather", "whether"))


HERMES = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>'


@pytest.mark.parametrize("must_call", [True, False])
@pytest.mark.parametrize(
    "wrong",
    [
        HERMES.replace('"city"', '"town"'),
        HERMES.replace("2", '"2"'),
        HERMES.replace('"city": "Paris", ', ""),
        HERMES.replace("weather", "weathers"),
        HERMES.replace("</tool_call>", ""),
    ],
)
def test_a_call_with_other_arguments_is_not_written(wrong: str, must_call: bool) -> None:
    closed = {"weather": {**LOOSE["weather"], "additionalProperties": False}}
    grammar = grammars("hermes", schemas=closed, must_call=must_call).plain
    assert accepts(grammar, HERMES) and not accepts(grammar, wrong)


def test_mistrals_calls_may_have_an_id_where_that_word_is_a_token() -> None:
    vocabulary, ids = calling.special_vocabulary("mistral")
    made, chance = grammars("mistral", special=ids).plain, Random("ids")
    texts = [calling.walked(made, chance, vocabulary, ids) or "" for _ in range(12)]
    with_ids = [text for text in texts if re.search(r"\[CALL_ID\][a-zA-Z0-9]{9}\[ARGS\]", text)]
    assert with_ids and any("[CALL_ID]" not in text for text in texts if text)
    calls, content = _calls_of("mistral", with_ids[0], is_open=False, thinks=False)
    assert calls and not content
    without = {word: ids[word] for word in ("[TOOL_CALLS]", "[ARGS]")}
    assert "{9}" not in grammars("mistral", special=without).plain.text


def test_one_call_is_all_where_there_is_to_be_one() -> None:
    for must_call in (True, False):
        one = grammars("hermes", schemas=LOOSE, only_one=True, must_call=must_call).plain
        some = grammars("hermes", schemas=LOOSE, must_call=must_call).plain
        assert accepts(one, HERMES) and not accepts(one, f"{HERMES}\n{HERMES}")
        assert accepts(some, f"{HERMES}\n{HERMES}")


def test_a_thought_comes_first_and_one_that_was_begun_is_ended() -> None:
    made = grammars("hermes", schemas=LOOSE, thinks=True)
    within = made.in_thought
    assert within is not None
    assert accepts(made.plain, f"<think>\nHm <tool_call>\n</think>\n\n{HERMES}")
    assert accepts(made.plain, HERMES) and not accepts(made.plain, f"Hm </think>{HERMES}")
    assert accepts(within, f"Hm.\n</think>\n\n{HERMES}") and not accepts(within, HERMES)
    assert grammars("hermes", schemas=LOOSE).in_thought is None


@pytest.mark.parametrize("family", FORCED)
@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("thinks", [False, True])
def test_every_answer_that_must_call_is_calls_that_their_schemas_allow(
    family: str, special: bool, thinks: bool
) -> None:
    vocabulary, ids = calling.special_vocabulary(family) if special else (None, None)
    made = grammars(family, thinks=thinks, special=ids)
    chance, num_told, names = Random(f"{family} {special} {thinks}"), 0, set()
    for turn in range(12):
        is_open = thinks and turn % 2 == 0
        grammar = made.in_thought if is_open else made.plain
        assert isinstance(grammar, Grammar)
        text = calling.walked(grammar, chance, vocabulary, ids)
        if text is None:
            continue
        calls, content = _calls_of(family, text, is_open=is_open, thinks=thinks)
        assert calls and not content.strip(), text
        num_told += 1
        names |= {name for name, _ in calls}
    assert num_told >= 6 and len(names) > 1


@pytest.mark.parametrize("family", FORCED)
@pytest.mark.parametrize("special", SPECIAL)
def test_every_call_of_an_answer_that_may_call_is_one_that_its_schema_allows(
    family: str, special: bool
) -> None:
    vocabulary, ids = calling.special_vocabulary(family) if special else (None, None)
    grammar = grammars(family, must_call=False, special=ids, thinks=True).plain
    chance, num_told = Random(f"{family} {special}"), 0
    for _ in range(12):
        text = calling.walked(grammar, chance, vocabulary, ids)
        if text is not None:
            _calls_of(family, text, is_open=False, thinks=True)
            num_told += 1
    assert num_told >= 6


def _calls_of(
    family: str, text: str, *, is_open: bool, thinks: bool
) -> tuple[list[tuple[str, object]], str]:
    """Checked against their schemas."""
    parts, parser = parsed(calling.parsing(family, thinks=thinks), [text], is_thinking=is_open)
    calls, content, _ = gathered(parts)
    assert parser.has_called == bool(calls), text
    for name, arguments in calls:
        jsonschema.validate(arguments, SCHEMAS[name])
    return calls, content


def test_a_word_that_is_a_special_token_is_never_spelled_by_others() -> None:
    vocabulary, ids = calling.special_vocabulary("hermes")
    may = grammars("hermes", must_call=False, special=ids, schemas=LOOSE, thinks=True).plain
    must = grammars("hermes", special=ids, schemas=LOOSE).plain
    assert f"<[{ids['<tool_call>']}]>" in must.text and THOUGHTS.begin not in must.text
    whole, spelled = (
        [ids["<tool_call>"]],
        vocabulary.tokenize_str("<") + [*vocabulary.tokenize_str("tool_call>")],
    )
    for grammar, before in ((must, []), (may, vocabulary.tokenize_str("Well. "))):
        matcher = compiled(vocabulary, grammar)
        assert matcher.consume_tokens(before) or not before
        assert matcher.validate_tokens(whole) == 1
        assert matcher.validate_tokens(spelled) < len(spelled)


@pytest.mark.parametrize("family", FORCED)
def test_a_function_without_a_schema_is_called_with_anything(family: str) -> None:
    grammar = grammars(family, schemas={"now": {"type": "object"}}, only_one=True).plain
    chance, told = Random(f"any {family}"), list[object]()
    for _ in range(6):
        text = calling.walked(grammar, chance)
        if text is not None:
            parts, parser = parsed(calling.parsing(family), [text])
            assert parser.has_called, text
            told += [arguments for _, arguments in gathered(parts)[0]]
    assert len(told) >= 3 and all(isinstance(each, dict) for each in told) and any(told)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"patternProperties": {"x": {}}}, "patternProperties"),
        ({"properties": {"a": {"type": "string", "pattern": "x"}}}, "'a'"),
        ({"properties": {"a": {"type": "string", "enum": ["</parameter>"]}}}, "'a'"),
        ({"properties": {"a>": {"type": "string"}}}, "a tag"),
        ({"properties": {"a": {"$ref": "#/properties/b"}, "b": {}}}, "no definition"),
        ({"properties": {}, "required": ["a"]}, "no property"),
        ({"properties": {"a": {"not": {}}}}, "`not`"),
    ],
)
def test_what_cannot_stand_between_tags_is_refused_by_name(schema: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as refused:
        grammars("qwen3_coder", schemas={"f": {"type": "object", **schema}})
    assert refused.value.param == "tools[0]"


def test_the_schemas_of_all_functions_together_keep_to_the_limit_of_a_grammar() -> None:
    large: Any = {"enum": ["x" * 1000 + str(i) for i in range(20)]}
    schemas = {f"f{i}": {"type": "object", "properties": {"a": large}} for i in range(2)}
    with pytest.raises(InvalidRequest, match="bytes") as refused:
        grammars("hermes", schemas=schemas)
    assert refused.value.param == "tools"


@pytest.mark.parametrize("family", sorted(FORMATS))
def test_schemas_of_all_functions_are_within_the_limit_of_one(family: str) -> None:
    half = {"properties": {f"p{i}": {"type": "integer"} for i in range(MAX_SCHEMAS // 2 - 1)}}
    assert functions({"a": half, "b": half})
    with pytest.raises(InvalidRequest, match=rf"tools\[2\] has {MAX_SCHEMAS + 1} schemas, with"):
        grammars(family, schemas={"a": half, "b": half, "c": half})
