"""Engines over the model-free runner with a real vocabulary, so that answers are texts.

The runner's logits are noise over 49,152 tokens. A bias towards what closes strings, lists and
objects lets answers end; it changes nothing of what a grammar allows.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llguidance import LLTokenizer

from cluster.block_hash import cache_root
from cluster.engine_options import EngineOptions
from cluster.grammar import Grammar, GrammarKind, whole_of
from cluster.kv_shape import KvShape
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from cluster.models.text.grammars import load_grammar_tokenizer
from cluster.models.text.tokenizer import CheckpointTokenizer, load_tokenizer
from cluster.sampling import SamplingParams
from engine.contract.commands import GenerateRequest, PrefillMode
from engine.process.fake_runner import fake_replica
from engine.runner.model_runner import Replica
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.step.engine import Engine

PROMPT = [11, 12, 13, 14, 15, 16, 17]
BLOCK_SIZE = 4
CLOSERS = ['"', '"}', "}", "]", '",', ",", ":", '":', ' "', "1", "0"]
SHAPE = KvShape(num_layers=1, num_planes=2, num_kv_heads=1, head_dim=2)


@cache
def card() -> ModelCard:
    """SmolLM2's."""
    return ModelStore().resolve("smollm2")


@cache
def text_tokenizer() -> CheckpointTokenizer:
    """Ids to text."""
    return load_tokenizer(card())


@cache
def grammar_tokenizer() -> LLTokenizer:
    """Loaded once: half a second."""
    return load_grammar_tokenizer(card())


@cache
def bias() -> dict[int, float]:
    """Of tokens that close something, and of the end."""
    ids = [text_tokenizer().encode(text) for text in CLOSERS]
    closing = {token_ids[0]: 14.0 for token_ids in ids if len(token_ids) == 1}
    return closing | dict.fromkeys(card().eos_token_ids, 16.0)


def schema_grammar(schema: object) -> Grammar:
    """As the router makes it of a schema with nothing to change."""
    return Grammar(whole_of([{"json_schema": schema}]), GrammarKind.JSON_SCHEMA)


def replica(num_blocks: int = 256) -> Replica:
    """As many tokens as SmolLM2 has."""
    return fake_replica(
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        vocab_size=card().config.vocab_size,
        eos_token_ids=card().eos_token_ids,
        shape=SHAPE,
    )


def engine(of: Replica | None = None, **options: Any) -> Engine:
    """One that follows grammars."""
    given = {"block_size_tokens": BLOCK_SIZE, "max_batch_tokens": 32, "max_num_seqs": 16} | options
    return Engine(
        of or replica(), EngineOptions(**given), grammars=GrammarCompiler(grammar_tokenizer)
    )


def request(
    request_id: str,
    grammar: Grammar | None,
    *,
    max_tokens: int = 400,
    mode: PrefillMode = PrefillMode.LOCAL,
    prompt: list[int] = PROMPT,
    **sampling: Any,
) -> GenerateRequest:
    """Sampled, by the closing bias, unless told otherwise."""
    given = {"seed": 5, "logit_bias": bias(), "temperature": 0.8} | sampling
    return GenerateRequest(
        request_id=request_id,
        token_ids=prompt,
        sampling=SamplingParams(max_tokens=max_tokens, grammar=grammar, **given),
        cache_root=cache_root("tests"),
        mode=mode,
        timeout_ms=300_000.0,
    )


def text_of(token_ids: list[int]) -> str:
    """Without the end of the text."""
    return text_tokenizer().decode(token_ids)
