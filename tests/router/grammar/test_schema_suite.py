"""JSON schemas, those of the JSON-Schema test suite and fifty of our own: what is followed is
followed to the letter, and what is not is refused by its name."""

from __future__ import annotations

import json
from functools import cache
from random import Random
from typing import Any

import jsonschema
import pytest
from llguidance import LLMatcher

from cluster.errors import InvalidRequest
from cluster.models.text.grammars import compiled
from router.grammar.json_schema import schema_grammar
from tests.router.grammar.matching import tokenizer
from tests.router.grammar.own_schemas import OWN
from tests.router.grammar.schema_suite import DRAFTS, SuiteCase, spellings, suite_cases
from tests.router.grammar.walking import answer_of

NUM_FOLLOWED = {"draft7": 140, "draft2020-12": 150}
"""Of 252 and 366."""
VALID_SHARE = 0.9
"""Of valid instances in the schema's order of properties, and formats and numbers as they are
usually written: 1.0 for an integer, say, is not."""
NUM_WALKS = 5
KEYWORDS = {
    *jsonschema.Draft7Validator.VALIDATORS,
    *jsonschema.Draft202012Validator.VALIDATORS,
    *("$schema", "then", "else", "minContains", "maxContains", "$recursiveRef", "$dynamicAnchor"),
}
NO_ANSWER = "schema is false"
"""What is said of a schema that nothing is valid under."""
OWN_CASES = [SuiteCase(name, "draft2020-12", schema) for name, schema in OWN.items()]


@cache
def followed(draft: str) -> list[tuple[SuiteCase, LLMatcher]]:
    """Those of a draft that are not refused, with matchers at their beginning."""
    found = ((case, _matcher(case.schema)) for case in suite_cases(draft))
    return [(case, matcher) for case, matcher in found if isinstance(matcher, LLMatcher)]


def _matcher(schema: Any) -> LLMatcher | InvalidRequest:
    try:
        return compiled(tokenizer(), schema_grammar(schema, param="schema"))
    except InvalidRequest as error:
        return error


def _accepts(matcher: LLMatcher, text: str) -> bool:
    token_ids = tokenizer().tokenize_str(text)
    taken = matcher.deep_copy()
    return taken.try_consume_tokens(token_ids) == len(token_ids) and taken.is_accepting()


def _answers(case: SuiteCase, matcher: LLMatcher) -> list[str]:
    """Whole ones, by fixed seeds."""
    found = (
        answer_of(matcher.deep_copy(), tokenizer(), Random(f"{case.name} {turn}"))
        for turn in range(NUM_WALKS)
    )
    return [text for text in found if text is not None]


def _checked(case: SuiteCase, matcher: LLMatcher) -> int:
    """How many answers came to an end: each parses and is valid."""
    answers = _answers(case, matcher)
    for text in answers:
        try:
            case.validate(json.loads(text))
        except (ValueError, jsonschema.ValidationError) as error:
            raise AssertionError(f"{case.name}: {text!r}: {error}") from error
    return len(answers)


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_schema_of_the_suite_is_followed_or_refused_by_a_keyword_that_it_has(draft: str) -> None:
    cases = suite_cases(draft)
    refused = [
        (case, error)
        for case in cases
        if isinstance(error := _matcher(case.schema), InvalidRequest)
    ]
    for case, error in refused:
        named = {word for word in KEYWORDS & _names_in(case.schema) if _stem(word) in error.message}
        assert named or NO_ANSWER in error.message, (case.name, error.message)
    assert len(cases) - len(refused) >= NUM_FOLLOWED[draft]


@pytest.mark.parametrize("draft", DRAFTS)
def test_no_invalid_instance_of_the_suite_is_accepted_and_most_others_are(draft: str) -> None:
    num_valid = num_accepted = num_invalid = 0
    for case, matcher in followed(draft):
        for instance, is_valid in case.instances:
            accepted = [_accepts(matcher, text) for text in spellings(instance)]
            if is_valid:
                num_valid += 1
                num_accepted += any(accepted)
            else:
                num_invalid += 1
                assert not any(accepted), (case.name, instance)
    assert num_invalid > 150 and num_accepted >= VALID_SHARE * num_valid


@pytest.mark.parametrize("draft", DRAFTS)
def test_every_finished_answer_to_a_schema_of_the_suite_is_valid(draft: str) -> None:
    ended = [_checked(case, matcher) for case, matcher in followed(draft)]
    assert sum(ended) >= 0.95 * NUM_WALKS * len(ended)


@pytest.mark.parametrize("case", OWN_CASES, ids=lambda case: case.name)
def test_every_finished_answer_to_a_schema_of_our_own_is_valid_and_none_beside_it(
    case: SuiteCase,
) -> None:
    matcher = _matcher(case.schema)
    assert isinstance(matcher, LLMatcher), matcher
    assert _checked(case, matcher) == NUM_WALKS
    for text in _answers(case, matcher):
        for other in _spoilt(json.loads(text)):
            if not _is_valid(case, other):
                assert not any(_accepts(matcher, each) for each in spellings(other)), other


def test_there_are_fifty_of_our_own() -> None:
    assert len(OWN) == 50


def _is_valid(case: SuiteCase, instance: Any) -> bool:
    try:
        case.validate(instance)
    except jsonschema.ValidationError:
        return False
    return True


def _spoilt(instance: Any) -> list[Any]:
    """With one value less, another, or one more, at every place."""
    found: list[Any] = [None, 7.5, "spoilt", [instance], {"spoilt": instance}]
    if isinstance(instance, dict):
        found += [{k: v for k, v in instance.items() if k != name} for name in instance]
        found.append({**instance, "spoilt": 1})
        found += [{**instance, k: other} for k, v in instance.items() for other in _spoilt(v)[:9]]
    elif isinstance(instance, list):
        found += [instance[1:], [*instance, "spoilt"], instance * 3]
        found += [[other, *instance[1:]] for each in instance[:1] for other in _spoilt(each)[:9]]
    return found


def _stem(word: str) -> str:
    """The library speaks of one patternProperty."""
    return word.removesuffix("ies")


def _names_in(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(_names_in, value))
    if isinstance(value, dict):
        return {name for each in value.values() for name in _names_in(each)} | value.keys()
    return set()
