"""Answers that grammars of calls let through, found by walking their masks at random."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

import llguidance.numpy
import numpy as np
from llguidance import LLMatcher, LLTokenizer

from cluster.grammar import Grammar
from cluster.models.cache.store import ModelStore
from cluster.models.text.grammars import compiled
from cluster.models.text.tokenizer import load_tokenizer
from router.api.reading.tool_kinds import kinds_of
from router.api.reading.tool_schema import FunctionDefinition
from router.grammar.call_grammar import CallGrammars, CallWish, call_grammars
from router.grammar.call_syntax import Function
from router.tools.answer_parser import Parsing
from router.tools.formats import FORMATS
from router.tools.thoughts import THOUGHT_FORMATS
from tests.router.grammar.matching import tokenizer

THOUGHTS = THOUGHT_FORMATS[0]
FORCED = tuple(FORMATS)
SCHEMAS: dict[str, dict[str, Any]] = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "minimum": 0, "maximum": 9},
            "unit": {"enum": ["C", "F", "</parameter>"]},
            "where": {"$ref": "#/$defs/Place"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "exact": {"type": ["boolean", "null"]},
        },
        "required": ["city", "where", "unit"],
        "additionalProperties": False,
        "$defs": {
            "Place": {
                "type": "object",
                "properties": {"x": {"type": "number"}, "tags": {"enum": [["a"], []]}},
                "required": ["x"],
                "additionalProperties": False,
            }
        },
    },
    "now": {"type": "object", "properties": {}, "additionalProperties": False},
    "function": {
        "type": "object",
        "properties": {"on": {"type": "boolean"}},
        "required": ["on"],
        "additionalProperties": False,
    },
}
_CLOSERS = (
    '"',
    "}",
    "<｜tool▁calls▁end｜>",
    "</parameter>",
    "</think>",
    "<tool_call>",
    "[TOOL_CALLS]",
    "<escape>",
    "<end_function_call>",
    "Hi",
)
MAX_TOKENS = 600


def functions(schemas: Mapping[str, dict[str, Any]] = SCHEMAS) -> list[Function]:
    definitions = [FunctionDefinition(name, None, schema) for name, schema in schemas.items()]
    kinds = kinds_of(definitions)
    return [
        Function(name=name, schema=schema, kinds=kinds[name], param=f"tools[{i}]")
        for i, (name, schema) in enumerate(schemas.items())
    ]


def parsing(family: str, *, thinks: bool = False) -> Parsing:
    definitions = [FunctionDefinition(name, None, schema) for name, schema in SCHEMAS.items()]
    return Parsing(
        thoughts=THOUGHTS if thinks else None,
        tools=FORMATS[family],
        names=frozenset(SCHEMAS),
        kinds=kinds_of(definitions),
    )


def grammars(
    family: str,
    *,
    must_call: bool = True,
    only_one: bool = False,
    special: Mapping[str, int] | None = None,
    thinks: bool = False,
    schemas: Mapping[str, dict[str, Any]] = SCHEMAS,
) -> CallGrammars:
    return call_grammars(
        CallWish(
            tools=FORMATS[family],
            functions=functions(schemas),
            must_call=must_call,
            only_one=only_one,
            special=special or {},
            thoughts=THOUGHTS if thinks else None,
        )
    )


@cache
def special_vocabulary(family: str) -> tuple[LLTokenizer, dict[str, int]]:
    """SmolLM2's, and the words of a family, and of thoughts, as special tokens."""
    card = ModelStore().resolve("smollm2")
    whole = json.loads(load_tokenizer(card).backend.to_str())
    words = sorted(FORMATS[family].words | THOUGHTS.words)
    ids = {word: card.config.vocab_size + i for i, word in enumerate(words)}
    about = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    whole["added_tokens"] += [
        {"id": token_id, "content": word, "special": True, **about}
        for word, token_id in ids.items()
    ]
    size = card.config.vocab_size + len(words)
    eos = list(card.eos_token_ids)
    return LLTokenizer(json.dumps(whole), n_vocab=size, eos_token=eos), ids


def walked(
    grammar: Grammar,
    chance: Random,
    vocabulary: LLTokenizer | None = None,
    special: Mapping[str, int] | None = None,
) -> str | None:
    """An answer, to an end that the grammar allows; None: it came to none in time."""
    tokens = vocabulary or tokenizer()
    names = {token_id: word for word, token_id in (special or {}).items()}
    matcher = compiled(tokens, grammar)
    closers = [tokens.tokenize_str(text) for text in _CLOSERS]
    taken: list[int] = []
    for _ in range(MAX_TOKENS):
        if matcher.is_stopped() or (matcher.is_accepting() and chance.random() < 0.3):
            return _text(tokens, taken, names)
        taken += _step(matcher, tokens, chance, closers)
    return None


def _step(
    matcher: LLMatcher, tokens: LLTokenizer, chance: Random, closers: Sequence[list[int]]
) -> list[int]:
    fitting = [each for each in closers if matcher.validate_tokens(each) == len(each)]
    if fitting and chance.random() < 0.3:
        chosen = chance.choice(fitting)
        assert matcher.consume_tokens(chosen)
        return chosen
    bits = llguidance.numpy.allocate_token_bitmask(1, tokens.vocab_size)
    llguidance.numpy.fill_next_token_bitmask(matcher, bits)
    allowed = np.flatnonzero(np.unpackbits(bits[0].view(np.uint8), bitorder="little"))
    ends = [0, tokens.eos_token]
    usual = [int(each) for each in allowed if each not in ends]
    token_id = chance.choice(usual)
    assert matcher.consume_token(token_id)
    return [token_id]


def _text(tokens: LLTokenizer, taken: Sequence[int], names: Mapping[int, str]) -> str:
    pieces = [names[t].encode() if t in names else tokens.decode_bytes([t]) for t in taken]
    return b"".join(pieces).decode()
