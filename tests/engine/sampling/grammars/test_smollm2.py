"""A real model that is asked for JSON: whatever it would have said, what it says is valid."""

from __future__ import annotations

import pytest

from cluster.generation import FinishReason
from engine.offline.queue import generate
from engine.offline.replica import OfflineSetup, load_offline
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.step.engine import Engine
from router.grammar.json_schema import schema_grammar
from tests.engine.sampling.grammars.grammar_engine import (
    grammar_tokenizer,
    request,
    text_of,
    text_tokenizer,
)
from tests.engine.sampling.grammars.own_schemas import OWN
from tests.engine.sampling.grammars.test_answers import check_valid

QUESTION = "<|im_start|>user\nGive me JSON for: {}<|im_end|>\n<|im_start|>assistant\n"
ENDS = ("person", "flags", "enum", "pattern", "union by const", "union in list", "invoice", "date")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_every_finished_answer_of_smollm2_is_valid_under_its_schema() -> None:
    setup = OfflineSetup(max_batch_tokens=256)
    engine = Engine(load_offline(setup), setup.options, grammars=GrammarCompiler(grammar_tokenizer))
    bodies = [
        request(
            name,
            schema_grammar(schema, param="s"),
            prompt=text_tokenizer().encode(QUESTION.format(name)),
            temperature=(0.0, 0.8)[i % 2],
            seed=i,
            logit_bias={},
            max_tokens=120,
        )
        for i, (name, schema) in enumerate(OWN.items())
    ]
    finished = set()
    for name, completion in zip(OWN, generate(engine, bodies), strict=True):
        if completion.finish_reasons[0] is FinishReason.STOP:
            finished.add(name)
            check_valid(name, text_of(completion.token_ids()))
    assert finished >= set(ENDS)
