"""Forms that come after a thought: every kind of them is kept to, and the thought is free."""

from __future__ import annotations

import json
from random import Random

import pytest

from cluster.errors import InvalidRequest
from cluster.grammar import Grammar
from cluster.models.text.grammars import compiled
from router.grammar.json_schema import schema_grammar
from router.grammar.lark import choice_grammar, json_object_grammar, lark_grammar, regex_grammar
from router.grammar.structural_tag import structural_tag_grammar
from router.grammar.thought_first import after_thought
from tests.router.grammar.calling import THOUGHTS, special_vocabulary
from tests.router.grammar.matching import accepts

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TAG = {"triggers": ["<f"], "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}]}
FORMS: dict[str, tuple[Grammar, str, str]] = {
    "a schema": (schema_grammar(SCHEMA, param="s"), '{"a": 1}', '{"a": "x"}'),
    "any object": (json_object_grammar(param="s"), '{"b": []}', "[]"),
    "an expression": (regex_grammar("[0-9]+", param="s"), "123", "12x"),
    "a choice": (choice_grammar(["yes", "no"], param="s"), "no", "maybe"),
    "Lark": (lark_grammar('start: thought\nthought: "(" start? ")"', param="s"), "(())", "(()"),
    "a structural tag": (
        structural_tag_grammar(TAG, param="s"), 'so <f>{"a": 2}</f>', "so <f>x</f>"
    ),
}  # fmt: skip
THOUGHT = 'Hm {"a": <think> (\n\n'


@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_kept_to_after_a_thought_and_without_one(name: str) -> None:
    form, right, wrong = FORMS[name]
    made = after_thought(form, THOUGHTS, {})
    assert made.plain is not None and made.in_thought is not None and made.within is form
    for before in ("", f"<think>{THOUGHT}</think>\n\n"):
        assert accepts(made.plain, before + right) and not accepts(made.plain, before + wrong)
    assert accepts(made.in_thought, f"{THOUGHT}</think>\n\n{right}")
    assert not accepts(made.in_thought, f"{THOUGHT}</think>\n\n{wrong}")
    assert not accepts(made.in_thought, THOUGHT)
    assert accepts(made.plain, "<think>Hm</think>") is accepts(form, "")


def test_words_that_are_special_tokens_are_those_tokens() -> None:
    vocabulary, ids = special_vocabulary("hermes")
    made = after_thought(FORMS["a schema"][0], THOUGHTS, ids)
    assert made.plain is not None and made.in_thought is not None
    begun = [ids["<think>"], *vocabulary.tokenize_str("Hm"), ids["</think>"]]
    form = vocabulary.tokenize_str('{"a": 1}')
    for grammar, taken in ((made.plain, [*begun, *form]), (made.in_thought, [*begun[1:], *form])):
        matcher = compiled(vocabulary, grammar)
        assert matcher.validate_tokens(taken) == len(taken)


def test_the_param_of_a_form_is_kept_and_one_that_is_too_long_with_a_thought_is_refused() -> None:
    made = after_thought(FORMS["a choice"][0], THOUGHTS, {})
    assert made.plain is not None and made.plain.param == "s"
    large = choice_grammar(["x" * 1000 + str(Random(i).random()) for i in range(31)], param="s")
    with pytest.raises(InvalidRequest, match="bytes") as refused:
        after_thought(choice_grammar([json.dumps("\n" * 1000)] * 8, param="s"), THOUGHTS, {})
    assert refused.value.param == "s"
    assert after_thought(large, THOUGHTS, {}).plain is not None
