"""What following a grammar costs: a mask, and sixteen streams with one beside sixteen without.

    python -m benchmarks.bench_grammar [--threads 2] [--rounds 9] [--streams 16] [--json PATH]

Engines without a server, SmolLM2, greedy: one that guesses nothing, and one that does, for free
answers and for those in a grammar, where it drafts what is forced as well. Streams with and without
a grammar take turns; both make as many tokens. A mask's time is of one row alone, token by token of
a greedy answer, each the median of five.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Row, exit_code, median_row, print_table, write_json
from cluster.grammar import Grammar, GrammarKind, whole_of
from cluster.models.cache.store import ModelStore
from cluster.models.text.grammars import load_grammar_tokenizer
from cluster.models.text.tokenizer import load_tokenizer
from cluster.sampling import SamplingParams
from engine.contract.commands import GenerateRequest
from engine.offline.queue import generate
from engine.offline.replica import OfflineSetup, load_offline
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.sampling.grammars.constraint import Constraint
from engine.sampling.grammars.masked_row import MaskedRow
from engine.sampling.grammars.masks import MaskMaker
from engine.sampling.grammars.meter import GrammarMeter
from engine.step.engine import Engine

NEW_TOKENS = 96
PROMPT = "<|im_start|>user\nOrders of customer {} as JSON.<|im_end|>\n<|im_start|>assistant\n"
LINE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "item": {"type": "string"},
        "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"},
        "count": {"type": "integer", "minimum": 1, "maximum": 99},
        "kind": {"enum": ["book", "record", "film"]},
        "parts": {"type": "array", "items": {"$ref": "#/$defs/line"}, "maxItems": 2},
    },
    "required": ["item", "code", "count", "kind"],
    "additionalProperties": False,
}
SCHEMA: dict[str, Any] = {
    "$defs": {"line": LINE},
    "type": "array",
    "items": {"$ref": "#/$defs/line"},
    "minItems": 50,
    "x-guidance": {"whitespace_pattern": r"[ \t\n\r]{0,24}"},
}
"""Nested and recursive, and longer than an answer may get."""
GRAMMAR = Grammar(whole_of([{"json_schema": SCHEMA}]), GrammarKind.JSON_SCHEMA)
MASK_GOAL_US = 15.0
SLOWER_GOAL_PERCENT = 3.0
WAYS = {"off": "without drafts", "auto": "with drafts"}


def bodies(prompts: list[list[int]], grammar: Grammar | None) -> list[GenerateRequest]:
    """One for each prompt, of NEW_TOKENS each."""
    return [
        GenerateRequest(
            request_id=str(i),
            token_ids=prompt,
            sampling=SamplingParams(
                max_tokens=NEW_TOKENS,
                temperature=0.0,
                ignore_eos=grammar is None,
                grammar=grammar,
            ),
            cache_root=bytes(16),
            timeout_ms=600_000.0,
        )
        for i, prompt in enumerate(prompts)
    ]


def decode_s(engine: Engine, prompts: list[list[int]], grammar: Grammar | None) -> float:
    """Of all tokens; the prompts, which are short and the same, are among it."""
    began_s = time.perf_counter()
    done = generate(engine, bodies(prompts, grammar))
    took_s = time.perf_counter() - began_s
    assert all(len(completion.token_ids()) == NEW_TOKENS for completion in done)
    return took_s


def mask_us(compiler: GrammarCompiler, vocab_size: int, answer: list[int]) -> list[float]:
    """Of each token of an answer."""
    maker, taken = MaskMaker(vocab_size, GrammarMeter()), list[float]()
    constraint = Constraint(compiler.compile(GRAMMAR).start())
    for end in range(len(answer)):
        row = MaskedRow(constraint, answer[constraint.num_known : end])
        maker.begin([row])
        assert row.job is not None
        taken.append(row.job.result() * 1e6)
    maker.close()
    return taken


def main() -> int:
    """1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    card = ModelStore().resolve("smollm2")
    setup = OfflineSetup(num_threads=args.threads)
    replica = load_offline(setup)
    compiler = GrammarCompiler(lambda: load_grammar_tokenizer(card))
    engines = {
        way: Engine(replica, replace(setup.options, speculation=way), grammars=compiler)
        for way in WAYS
    }
    tokenizer = load_tokenizer(card)
    prompts = [tokenizer.encode(PROMPT.format(i)) for i in range(args.streams)]
    rows = [row for way in WAYS for row in steps_of(engines[way], WAYS[way], prompts, args.rounds)]
    rows += masks_of(engines["off"], compiler, prompts[:1])
    print_table(f"a grammar followed by {args.streams} streams", rows)
    write_json(args.json, "grammar", rows)
    return exit_code(rows)


def steps_of(engine: Engine, way: str, prompts: list[list[int]], rounds: int) -> list[Row]:
    """The first round is for warmth."""
    per_token = 1e3 / NEW_TOKENS
    plain, with_one = list[float](), list[float]()
    for number in range(rounds + 1):
        free_s, bound_s = decode_s(engine, prompts, None), decode_s(engine, prompts, GRAMMAR)
        if number:
            plain.append(free_s * per_token)
            with_one.append(bound_s * per_token)
    slower = [(b / a - 1) * 100 for a, b in zip(plain, with_one, strict=True)]
    return [
        median_row(f"a token of each stream, {way}", plain, "ms"),
        median_row(f"the same in a grammar, {way}", with_one, "ms"),
        median_row(f"slower by, {way}", slower, "%", goal=SLOWER_GOAL_PERCENT),
    ]


def masks_of(engine: Engine, compiler: GrammarCompiler, prompts: list[list[int]]) -> list[Row]:
    """Of one answer, token by token."""
    [answer] = generate(engine, bodies(prompts, GRAMMAR))
    vocab_size = ModelStore().resolve("smollm2").config.vocab_size
    masks = np.array([mask_us(compiler, vocab_size, answer.token_ids()) for _ in range(5)])
    each = np.median(masks, axis=0)
    return [
        Row("a mask, median token", float(np.median(each)), "us", goal=MASK_GOAL_US),
        Row("a mask, 90 of 100 tokens", float(np.percentile(each, 90)), "us"),
        Row("a mask, slowest token", float(each.max()), "us"),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
