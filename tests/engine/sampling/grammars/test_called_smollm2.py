"""A real model that must call: what it says is a call that its schema allows, in every family's
words."""

from __future__ import annotations

from random import Random

import jsonschema
import pytest

from cluster.generation import FinishReason
from engine.offline.queue import generate
from engine.offline.replica import OfflineSetup, load_offline
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.step.engine import Engine
from tests.engine.sampling.grammars.grammar_engine import (
    grammar_tokenizer,
    request,
    text_of,
    text_tokenizer,
)
from tests.router.grammar.calling import FORCED, SCHEMAS, grammars, parsing
from tests.router.tools.recorded_calls import gathered, parsed

QUESTION = "<|im_start|>user\nWhat is the weather in Paris?<|im_end|>\n<|im_start|>assistant\n"
RUNS = [(family, temperature) for family in FORCED for temperature in (0.0, 0.8)]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_every_finished_answer_of_smollm2_that_must_call_is_a_call() -> None:
    setup = OfflineSetup(max_batch_tokens=256)
    engine = Engine(load_offline(setup), setup.options, grammars=GrammarCompiler(grammar_tokenizer))
    seeds = Random(7)
    bodies = [
        request(
            f"{family} {temperature}",
            grammars(family, only_one=True).plain,
            prompt=text_tokenizer().encode(QUESTION),
            temperature=temperature,
            seed=seeds.getrandbits(32),
            logit_bias={},
            max_tokens=160,
        )
        for family, temperature in RUNS
    ]
    num_finished = 0
    for (family, _), completion in zip(RUNS, generate(engine, bodies), strict=True):
        if completion.finish_reasons[0] is not FinishReason.STOP:
            continue
        num_finished += 1
        parts, _ = parsed(parsing(family), [text_of(completion.token_ids())])
        (call,), content, _ = gathered(parts)
        jsonschema.validate(call[1], SCHEMAS[call[0]])
        assert not content
    assert num_finished >= len(FORCED)
