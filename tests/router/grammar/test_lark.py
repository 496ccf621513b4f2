"""Grammars that are no schemas: regular expressions, choices, Lark, and text with tags in it."""

from __future__ import annotations

import time

import pytest

from cluster.errors import InvalidRequest
from cluster.grammar import GrammarKind
from router.grammar import structural_tag
from router.grammar.json_schema import json_in_lark
from router.grammar.lark import (
    _RULE,
    choice_grammar,
    choices_in,
    lark_grammar,
    regex_grammar,
)
from router.grammar.limits import MAX_GRAMMAR_BYTES
from router.grammar.structural_tag import structural_tag_grammar
from tests.router.grammar.matching import accepts


@pytest.mark.parametrize(
    ("pattern", "text", "other"),
    [
        ("a+", "aaa", "baa"),
        ("^a/b$", "a/b", "xa/b"),
        (r"\d{3}-\d+", "123-4", "12-4"),
        (r"cost\$", "cost$", "cost"),
        ("a|b", "b", "ab"),
        ("[^/]+/x", "q/x", "/x"),
        ("é猫?", "é猫", "猫"),
    ],
)
def test_an_expression_is_of_the_whole_answer(pattern: str, text: str, other: str) -> None:
    grammar = regex_grammar(pattern, param="regex")
    assert accepts(grammar, text) and not accepts(grammar, other)


def test_a_choice_is_one_of_its_texts_whatever_they_contain() -> None:
    texts = ["a", 'b | "c"', "é\n😀", "\\d+", "/", "<|im_end|>x"]
    grammar = choice_grammar(texts, param="choice")
    assert all(accepts(grammar, text) for text in texts[:5])
    assert not accepts(grammar, "b") and not accepts(grammar, "7")
    assert choices_in(grammar) == texts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('start: %json {"x-guidance": {"lenient": true}}', "x-guidance"),
        (r'start: %json {"x\u002dguidance": {"lenient": true}, "not": {}}', "not supported"),
        ('start: "a" | %json\n{"type": "object", "properties": {"a": {"not": {}}}}', "`not` at"),
        ('start: %json {"anyOf": [' + ", ".join(["{}"] * 300) + "]}", "300 schemas in"),
        ("start: " + '%json {"anyOf":[{},{},{},{}]} ' * 205, "1025 schemas;"),
        ("start: " + "%json {} " * 257, "257 places of %json"),
        ('start: "a"\n// ' + "]" * 2000 + "\n%json " + "[" * 2000, "2000 brackets in each other"),
        ("start: %json " + '["]",' * 5000, "nested too deeply"),
        ('{"grammars": []}', "no rule `start`"),
        ("start: " + "(" * 65 + '"a"' + ")" * 65, "brackets"),
        ("\n".join(f"r{i}: r{i + 1}" for i in range(300)), "rules"),
        ("\n".join(f'r{i}[stop=":"]: r{i + 1}' for i in range(300)), "rules"),
        ("\n".join(f'r{i}[stop=/"/, capture="/\\":"]:r{i + 1}' for i in range(300)), "rules"),
        ("start: /a/" + " " * 40_000, "bytes"),
    ],
)
def test_lark_is_kept_within_limits(text: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as refused:
        lark_grammar(text, param="grammar")
    assert refused.value.param == "grammar"


@pytest.mark.parametrize(
    "piece", ["a", " ", "a ", "a b\n", "?a", "a(", "\t\n", "a:b", 'a"', 'a"\\', "a/", 'a["b"']
)
def test_rules_are_counted_in_time_that_grows_with_the_text(piece: str) -> None:
    """Four times the text would take sixteen times as long, were each letter read anew."""

    def least_s(size: int) -> float:
        text, times = (piece * size)[:size], list[float]()
        for _ in range(5):
            began_s = time.thread_time()
            _RULE.findall(text)
            times.append(time.thread_time() - began_s)
        return min(times)

    assert least_s(MAX_GRAMMAR_BYTES) < 9 * least_s(MAX_GRAMMAR_BYTES // 4) + 1e-4


def test_lines_that_are_no_rules_are_not_counted() -> None:
    lines = ["start: a", 'a: "x"', '  | "y:"', "// a comment: none", "", '%ignore / :"/', "b.1: a"]
    assert len(_RULE.findall("\n".join(lines))) == 3


def test_a_checked_schema_can_stand_in_lark() -> None:
    number = json_in_lark({"type": "integer", "uniqueItems": False}, param="tools[0]")
    grammar = lark_grammar(f'start: "f(" {number} ")"', param="tools", kind=GrammarKind.TOOLS)
    assert accepts(grammar, "f(12)") and not accepts(grammar, "f(x)")
    with pytest.raises(InvalidRequest, match="not"):
        json_in_lark({"not": {}}, param="tools[0]")


TAG = {
    "type": "structural_tag",
    "triggers": ["<fn=", "[go"],
    "structures": [
        {"begin": "<fn=a>", "schema": {"type": "integer"}, "end": "</fn>"},
        {"begin": "<fn=b>", "schema": {"type": "boolean"}, "end": "</fn>"},
        {"begin": "[go]", "schema": {"type": "array"}, "end": ""},
    ],
}


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("hello", True),
        ("", True),
        ("hello <fn=a>12</fn> bye", True),
        ("<fn=b>true</fn><fn=a>1</fn>", True),
        ("a [go][1, 2] x", True),
        ("<fn", True),
        ("<fn=b>12</fn>", False),
        ("<fn=c>", False),
        ("hello <fn=a>12</fn> <fn=", False),
        ("[go]1", False),
        ("[gox]", False),
    ],
)
def test_text_is_free_up_to_a_trigger_and_bound_from_there(text: str, is_right: bool) -> None:
    assert accepts(structural_tag_grammar(TAG, param="tag"), text) is is_right


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"triggers": []}, "at least one"),
        ({"triggers": ["<fn=", "<fn=a"]}, "2 of the triggers"),
        ({"triggers": ["<fn=", "[go", "??"]}, "no structure begins"),
        ({"triggers": ["<fn=", "[go", ""]}, "trigger"),
        ({"structures": [{"begin": "x", "schema": {}, "end": ""}]}, "0 of the triggers"),
        ({"format": {}}, "`format` is not supported"),
        ({"more": 1}, "more"),
        ({"structures": [{"begin": "<fn=a", "schema": {"not": {}}, "end": ""}]}, "not"),
    ],
)
def test_a_tag_that_cannot_be_followed_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        structural_tag_grammar({**TAG, **changes}, param="tag")


def test_a_trigger_is_spelled_once_and_too_long_ones_are_refused_before_any_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spelled: list[str] = []
    monkeypatch.setattr(structural_tag, "regex", lambda text: spelled.append(text) or text)
    triggers = [f"{i:02}" for i in range(16)]
    structures = [{"begin": trigger, "schema": True, "end": ""} for trigger in triggers]
    structural_tag_grammar({"triggers": triggers, "structures": structures}, param="tag")
    assert spelled == triggers
    monkeypatch.setattr(structural_tag, "_parts_of", None)
    with pytest.raises(InvalidRequest, match="bytes"):
        long = ["x" * MAX_GRAMMAR_BYTES, "y"]
        structural_tag_grammar({"triggers": long, "structures": structures}, param="tag")


def test_schemas_in_lark_that_are_followed_are_left_as_they_are() -> None:
    text = 'start: "<" %json {"type": "integer", "title": "%json {"} ">" | "%json {"'
    grammar = lark_grammar(text, param="grammar")
    assert grammar.text == text and accepts(grammar, "<12>") and accepts(grammar, "%json {")
