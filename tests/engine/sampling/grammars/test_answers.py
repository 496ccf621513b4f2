"""Answers that follow a grammar, of an engine whose model knows nothing of it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import msgspec
import pytest

from cluster.errors import GrammarFailed, InvalidRequest
from cluster.generation import BegunChoice, FinishReason
from cluster.grammar import Grammar, GrammarKind
from engine.contract.commands import Submit
from engine.offline.queue import Completion, generate
from engine.step.step_health import MAX_FAILED_STEPS
from router.grammar.json_schema import schema_grammar
from router.grammar.lark import choice_grammar, json_object_grammar, lark_grammar, regex_grammar
from tests.engine.sampling.grammars.grammar_engine import engine, request, text_of
from tests.engine.sampling.grammars.late_masks import AT_ONCE
from tests.engine.sampling.grammars.own_schemas import OWN
from tests.engine.step.engine_scenario import run_until_ended

NUMBER = schema_grammar({"type": "integer", "minimum": 0, "maximum": 999}, param="schema")


def check_valid(name: str, text: str) -> None:
    """It parses, and is valid; also by formats, where the validator knows them."""
    formats = jsonschema.Draft202012Validator.FORMAT_CHECKER
    validator = jsonschema.Draft202012Validator(OWN[name], format_checker=formats)
    validator.validate(json.loads(text))


def answer(grammar: Grammar, **sampling: Any) -> tuple[str, FinishReason]:
    """Alone."""
    [completion] = generate(engine(), [request("a", grammar, **sampling)])
    return text_of(completion.token_ids()), completion.finish_reasons[0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_finished_answer_is_valid_under_its_schema(temperature: float) -> None:
    bodies = [
        request(name, schema_grammar(schema, param="s"), temperature=temperature, seed=seed)
        for seed, (name, schema) in enumerate(OWN.items())
    ]
    finished = 0
    for name, completion in zip(OWN, generate(engine(), bodies), strict=True):
        if completion.finish_reasons[0] is FinishReason.STOP:
            finished += 1
            check_valid(name, text_of(completion.token_ids()))
    assert finished >= 45, "those that go on to their length show nothing"


def test_a_length_in_the_middle_of_a_grammar_is_told_as_a_length() -> None:
    text, reason = answer(schema_grammar(OWN["invoice"], param="s"), max_tokens=4)
    assert reason is FinishReason.LENGTH
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)


def test_a_complete_grammar_leaves_nothing_but_the_end() -> None:
    bare: dict[int, float] = {}
    text, reason = answer(choice_grammar(["yes"], param="c"), logit_bias=bare)
    assert (text, reason) == ("yes", FinishReason.STOP)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_choices_expressions_and_grammars_are_followed_as_schemas_are(temperature: float) -> None:
    sampled = {"temperature": temperature}
    choices = ["left", "right", "straight on"]
    assert answer(choice_grammar(choices, param="c"), **sampled)[0] in choices
    text, _ = answer(regex_grammar(r"^[ab]{3}-\d{2}$", param="r"), **sampled)
    assert len(text) == 6 and set(text[:3]) <= set("ab") and text[4:].isdecimal()
    lark = 'start: "(" start ")" | "x"'
    text, _ = answer(lark_grammar(lark, param="g"), max_tokens=900, **sampled)
    half = text.count("(")
    assert text == "(" * half + "x" + ")" * half
    text, reason = answer(json_object_grammar(param="f"), **sampled)
    assert reason is FinishReason.LENGTH or isinstance(json.loads(text), dict)


def test_sixteen_at_once_give_what_each_gives_alone() -> None:
    names = list(OWN)[:8]
    bodies = [
        request(f"{name}-{seed}", schema_grammar(OWN[name], param="s"), seed=seed, max_tokens=40)
        for name in names
        for seed in (1, 2)
    ]
    together = generate(engine(), bodies)
    for body, completion in zip(bodies, together, strict=True):
        [alone] = generate(engine(), [body])
        assert alone.token_ids() == completion.token_ids()


def test_choices_of_one_request_follow_it_each_by_itself() -> None:
    [completion] = generate(engine(), [request("a", NUMBER, n=3, seed=9, temperature=1.2)])
    texts = [text_of(completion.token_ids(choice)) for choice in range(3)]
    assert len(set(texts)) > 1 and all(0 <= int(text) <= 999 for text in texts)


def test_requests_without_a_grammar_are_as_they_were_beside_those_with_one() -> None:
    plain = request("plain", None, max_tokens=12, logit_bias={})
    [alone] = generate(engine(), [plain])
    both = generate(engine(), [plain, request("a", NUMBER)])
    assert both[0].token_ids() == alone.token_ids()


def test_logprobs_are_those_of_what_may_come() -> None:
    [completion] = generate(
        engine(), [request("a", choice_grammar(["yes"], param="c"), logprobs=3, logit_bias={})]
    )
    for token in completion.tokens[0]:
        assert token.logprob is not None and token.logprob <= 0.0
        assert all(value > float("-inf") for _, value in token.top)
    *_, end = completion.tokens[0]
    assert end.logprob == 0.0 and end.top == ((end.token_id, 0.0),)


@pytest.mark.parametrize("field", [{"min_tokens": 2}, {"ignore_eos": True}])
def test_what_would_go_on_past_the_end_of_a_grammar_is_refused(field: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(field))):
        generate(engine(), [request("a", NUMBER, **field)])


def test_a_grammar_that_cannot_be_compiled_ends_its_request_alone() -> None:
    running = engine()
    for body in (
        request("broken", Grammar("start: nothing", GrammarKind.LARK)),
        request("well", NUMBER),
    ):
        running.apply(Submit(body))
    done: dict[str, Completion] = run_until_ended(running, ["broken", "well"], 10**6)
    ended = done["broken"].ended
    assert ended is not None and ended.error_code == "invalid_request"
    assert "unknown name" in ended.error_message
    assert 0 <= int(text_of(done["well"].token_ids())) <= 999


def test_a_matcher_that_fails_in_the_middle_costs_its_answer_nothing() -> None:
    """It may have failed of what others did: the answer goes on with a compile of its own."""
    running, body = engine(), request("a", schema_grammar(OWN["invoice"], param="s"))
    running.masking.waits = AT_ONCE
    running.apply(Submit(body))
    running.apply(Submit(request("well", NUMBER)))
    while True:
        [sequence] = [s for r in running.table for s in r.sequences if r.request_id == "a"]
        if sequence.num_generated:
            break
        running.step()
    running.masking.settle()
    assert sequence.constraint is not None
    sequence.constraint.matcher.consume_token(0)  # as if it had met a limit
    done = run_until_ended(running, ["a", "well"], 10**6)
    [alone] = generate(engine(), [body])
    for each in done.values():
        assert each.ended is not None and not each.ended.error_code
    told = done["a"].token_ids()  # from where somebody listens
    assert alone.token_ids()[-len(told) :] == told and len(told) > 1
    assert running.table.num_constrained == 0


def test_grammars_that_fail_one_after_the_other_do_not_end_the_engine() -> None:
    """Each without a token of its own: its first one came from elsewhere, and is not allowed."""
    running = engine()
    names = [f"fails {i}" for i in range(MAX_FAILED_STEPS + 1)]
    for i, name in enumerate(names):
        body = request(name, NUMBER, prompt=[20 + i, 21, 22])
        begun = [BegunChoice(choice=0, token_ids=[0])]
        running.apply(Submit(msgspec.structs.replace(body, resume=begun)))
        ended = run_until_ended(running, [name], 10**6)[name].ended
        assert ended is not None and ended.error_code == "grammar_failed"
    running.apply(Submit(request("well", NUMBER)))
    done = run_until_ended(running, ["well"], 10**6)
    assert 0 <= int(text_of(done["well"].token_ids())) <= 999


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.0, "logit_bias": {}}])
def test_grammars_with_a_dead_end_end_their_requests_there_and_not_the_engine(
    sampling: dict[str, Any],
) -> None:
    """The library tells of it where no token may come, and not before."""
    running = engine()
    dead = Grammar("start: /x{20}/ END\nEND: /a/ & /b/", GrammarKind.LARK)
    for i in range(MAX_FAILED_STEPS + 1):
        body = request(f"dead {i}", dead, prompt=[20 + i, 21, 22], **sampling)
        running.apply(Submit(body))
        done = run_until_ended(running, [body.request_id], 10**6)[body.request_id]
        assert done.ended is not None and done.ended.error_code == "grammar_failed"
    running.apply(Submit(request("well", NUMBER)))
    done = run_until_ended(running, ["well"], 10**6)["well"]
    assert 0 <= int(text_of(done.token_ids())) <= 999


def test_an_engine_without_grammars_refuses_them() -> None:
    from tests.engine.step.engine_scenario import request as small_request
    from tests.engine.step.engine_scenario import small_engine

    body = small_request("a", [1, 2], grammar=NUMBER)
    with pytest.raises(InvalidRequest, match="follows no grammars"):
        generate(small_engine(), [body])


def test_errors_of_grammars_are_the_requests_own() -> None:
    from cluster.errors import from_code, status_of

    status = status_of(GrammarFailed("x"))
    assert (status.code, status.http) == ("grammar_failed", 400)
    assert isinstance(from_code("grammar_failed", "x"), InvalidRequest)
