"""An engine on a GPU whose answers follow a grammar, beside others. Never run yet."""

from __future__ import annotations

import json

import pytest
import torch

from cluster.engine_options import EngineOptions
from cluster.identity import Role
from engine.contract.spec import EngineSpec
from engine.offline.queue import generate
from engine.runner.replica import load_replica
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.step.engine import Engine
from tests.engine.sampling.grammars.grammar_engine import (
    card,
    grammar_tokenizer,
    request,
    schema_grammar,
    text_of,
)

SCHEMA = {
    "type": "object",
    "properties": {"size": {"enum": ["small", "large"]}, "is_old": {"type": "boolean"}},
    "required": ["size", "is_old"],
    "additionalProperties": False,
}


@pytest.mark.gpu
@pytest.mark.timeout(600)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_an_answer_on_a_gpu_is_of_its_schema_beside_others_that_have_none() -> None:
    answer_on("cuda")


def answer_on(device: str) -> None:
    """Of SmolLM2, by its own kernels there."""
    spec = EngineSpec(
        card=card(),
        dtype="bfloat16",
        role=Role.DECODE,
        worker_id="tested",
        incarnation="only",
        options=EngineOptions(
            device=device, kv_memory_bytes=64 << 20, max_context_tokens=512, max_num_seqs=4
        ),
    )
    replica = load_replica(spec, lambda phase, fraction: None)
    engine = Engine(replica, spec.options, grammars=GrammarCompiler(grammar_tokenizer))
    asked = [
        request("schema", schema_grammar(SCHEMA), max_tokens=60),
        request("free", None, max_tokens=60),
    ]
    constrained, _ = generate(engine, asked)
    tokens = [t for t in constrained.token_ids() if t not in card().eos_token_ids]
    answer = json.loads(text_of(tokens))
    assert answer["size"] in ("small", "large")
    assert isinstance(answer["is_old"], bool)
