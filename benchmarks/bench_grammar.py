"""What following a grammar costs: a mask, and sixteen streams with one beside sixteen without.

    python -m benchmarks.bench_grammar [--threads 2] [--rounds 9] [--streams 16] [--json PATH]

Engines without a server, SmolLM2, greedy: such as guess nothing, and such as do, for free answers
and for those in a grammar, where they draft what is forced as well. Streams with and without a
grammar have an engine each and take turns of TURN_STEPS steps, so that a machine whose speed
changes is as fast for both; the first step of a turn, beside which masks of the turn before may be
made, is not counted. Both make as many tokens. A mask's time is of one row alone, token by token of
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
from engine.contract.commands import GenerateRequest, Submit
from engine.offline.queue import Completion, collect, generate
from engine.offline.replica import OfflineSetup, load_offline
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.sampling.grammars.constraint import Constraint
from engine.sampling.grammars.masked_row import MaskedRow
from engine.sampling.grammars.masks import MaskMaker
from engine.sampling.grammars.meter import GrammarMeter
from engine.step.engine import Engine

NEW_TOKENS = 96
TURN_STEPS = 12
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


class Streams:
    """Sixteen or so answers of one engine, which go on when they are told."""

    def __init__(self, engine: Engine, prompts: list[list[int]], grammar: Grammar | None) -> None:
        """Until each has its first token."""
        self._engine = engine
        asked = bodies(prompts, grammar)
        self._answers = {body.request_id: Completion() for body in asked}
        for body in asked:
            engine.apply(Submit(body))
        while any(not answer.tokens for answer in self._answers.values()):
            self._step()
        self.took_s, self.num_tokens = 0.0, 0
        """Of all steps that count, and what they gave."""

    @property
    def are_over(self) -> bool:
        """Every answer has ended."""
        return all(answer.ended is not None for answer in self._answers.values())

    def take_turn(self) -> None:
        """TURN_STEPS steps, or as many as are left."""
        for number in range(TURN_STEPS):
            if self.are_over:
                return
            began_s = time.perf_counter()
            num_tokens = self._step()
            if number:
                self.took_s += time.perf_counter() - began_s
                self.num_tokens += num_tokens

    def _step(self) -> int:
        frame = self._engine.step()
        collect(frame, self._answers)
        return len(frame.tokens)


def ms_per_token(free: Engine, bound: Engine, prompts: list[list[int]]) -> tuple[float, float]:
    """Of each stream, without a grammar and with one."""
    sides = [Streams(free, prompts, None), Streams(bound, prompts, GRAMMAR)]
    while not all(side.are_over for side in sides):
        for side in sides:
            side.take_turn()
    one, other = (1e3 * len(prompts) * side.took_s / side.num_tokens for side in sides)
    return one, other


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
    compiler = GrammarCompiler(lambda: load_grammar_tokenizer(card))
    replicas = [load_offline(setup) for _ in range(2)]
    engines = {
        way: [
            Engine(replica, replace(setup.options, speculation=way), grammars=compiler)
            for replica in replicas
        ]
        for way in WAYS
    }
    tokenizer = load_tokenizer(card)
    prompts = [tokenizer.encode(PROMPT.format(i)) for i in range(args.streams)]
    rows = [row for way in WAYS for row in steps_of(*engines[way], WAYS[way], prompts, args.rounds)]
    rows += masks_of(engines["off"][1], compiler, prompts[:1])
    print_table(f"a grammar followed by {args.streams} streams", rows)
    write_json(args.json, "grammar", rows)
    return exit_code(rows)


def steps_of(
    free: Engine, bound: Engine, way: str, prompts: list[list[int]], rounds: int
) -> list[Row]:
    """The first round is for warmth."""
    each = [ms_per_token(free, bound, prompts) for _ in range(rounds + 1)][1:]
    plain, with_one = zip(*each, strict=True)
    slower = [(b / a - 1) * 100 for a, b in each]
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
