"""Requests as vLLM reads them."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.block_hash import cache_root
from cluster.errors import InvalidRequest
from cluster.grammar import Grammar, GrammarKind
from cluster.grammar_wire import grammar_to_wire
from protos import generation_pb2, handoff_pb2, worker_pb2
from router.grammar.json_schema import JsonOptions, schema_grammar
from router.grammar.lark import choice_grammar, json_object_grammar, regex_grammar
from router.vllm.completion_body import completion_body, prefill_body
from router.vllm.vllm_grammar import check_version
from tests.router.planes import PAIRING

MODEL = "smollm2"
SALT = "a salt"


def submit_of(salt: str = "", **sampling: Any) -> worker_pb2.Submit:
    given = {"max_tokens": 5, "n": 1, "repetition_penalty": 1.0} | sampling
    return worker_pb2.Submit(
        request_id="r1",
        token_ids=[1, 2],
        sampling=generation_pb2.SamplingParams(**given),
        cache_root=cache_root(PAIRING.key, salt),
    )


def test_every_parameter_is_said_so_that_no_default_of_the_server_counts() -> None:
    body = completion_body(submit_of(top_k=7, logit_bias={5: 1.5}, stop_token_ids=[3]), MODEL, SALT)
    assert body["prompt"] == [1, 2] and body["model"] == "smollm2" and body["top_k"] == 7
    assert body["logit_bias"] == {"5": 1.5} and body["stop_token_ids"] == [3]
    assert {"temperature", "top_p", "min_p", "seed", "ignore_eos", "presence_penalty"} <= set(body)
    assert body["return_token_ids"] and body["stream"] and "logprobs" not in body


@pytest.mark.parametrize(
    ("ours", "theirs"), [(0, 0), (2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (2**64 - 1, -1)]
)
def test_a_seed_is_the_same_64_bits_with_a_sign(ours: int, theirs: int) -> None:
    assert completion_body(submit_of(seed=ours), MODEL, SALT)["seed"] == theirs


def test_the_salt_of_the_servers_cache_is_the_one_that_was_given() -> None:
    assert completion_body(submit_of("acme"), MODEL, SALT)["cache_salt"] == SALT


@pytest.mark.parametrize(
    "shifting",
    [{"repetition_penalty": 1.1}, {"presence_penalty": 0.5}, {"logit_bias": {1: 2.0}}],
)
def test_logprobs_that_would_be_of_other_logits_are_refused_by_name(
    shifting: dict[str, Any],
) -> None:
    assert completion_body(submit_of(logprobs=2), MODEL, SALT)["logprobs"] == 2
    with pytest.raises(InvalidRequest) as caught:
        completion_body(submit_of(logprobs=2, **shifting), MODEL, SALT)
    assert caught.value.param == "logprobs"


def test_scores_of_the_prompt_are_refused_by_name() -> None:
    with pytest.raises(InvalidRequest) as caught:
        completion_body(submit_of(prompt_logprobs=1), MODEL, SALT)
    assert caught.value.param == "prompt_logprobs"


def test_another_workers_answer_is_not_gone_on_with() -> None:
    submit = submit_of()
    submit.resume.append(handoff_pb2.BegunChoice(choice=0, token_ids=[5]))
    with pytest.raises(InvalidRequest):
        completion_body(submit, MODEL, SALT)


SCHEMA = {"type": "object", "properties": {"b": {}, "a": {}}}


@pytest.mark.parametrize(
    ("grammar", "theirs"),
    [
        (schema_grammar(SCHEMA, param="s"), {"json": SCHEMA}),
        (
            schema_grammar(SCHEMA, param="s", options=JsonOptions(disable_any_whitespace=True)),
            {"json": SCHEMA, "disable_any_whitespace": True},
        ),
        (
            schema_grammar(SCHEMA, param="s", options=JsonOptions(whitespace_pattern=" ?")),
            {"json": SCHEMA, "whitespace_pattern": " ?"},
        ),
        (json_object_grammar(param="f"), {"json_object": True}),
        (choice_grammar(["a", 'b "|" c'], param="c"), {"choice": ["a", 'b "|" c']}),
    ],
)
def test_what_an_answer_is_to_be_is_said_in_vllms_words(grammar: Grammar, theirs: Any) -> None:
    body = completion_body(submit_of(grammar=grammar_to_wire(grammar)), MODEL, SALT)
    assert body["structured_outputs"] == theirs
    assert "structured_outputs" not in prefill_body(body)
    assert "structured_outputs" not in completion_body(submit_of(), MODEL, SALT)


@pytest.mark.parametrize(
    "grammar",
    [
        regex_grammar("a+", param="r"),
        Grammar('start: "a"', GrammarKind.LARK),
        Grammar('start: "a"', GrammarKind.STRUCTURAL_TAG),
        Grammar('start: "a"', GrammarKind.TOOLS),
    ],
)
def test_what_vllm_reads_in_another_dialect_is_refused_by_its_name(grammar: Grammar) -> None:
    with pytest.raises(InvalidRequest, match=grammar.kind):
        completion_body(submit_of(grammar=grammar_to_wire(grammar)), MODEL, SALT)


def test_a_vllm_that_would_leave_the_format_out_is_not_asked() -> None:
    for version in ("vLLM 0.11.0", "vLLM 0.33.0", "vLLM 1.0"):
        check_version(version)
    for version in ("vLLM 0.10.2", "vLLM 0.9.1rc1", ""):
        with pytest.raises(InvalidRequest, match=r"since 0\.11") as refused:
            check_version(version)
        assert refused.value.param is None  # by which field it was asked, nobody knows here
