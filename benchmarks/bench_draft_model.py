"""Answers with a draft model beside the same answers without: time per token, at 1 and 16 streams.

    python -m benchmarks.bench_draft_model [--threads 2] [--rounds 3] [--tokens 128] [--json PATH]

A target and a draft of a few of its layers are made of SmolLM2 (draft_models.py); `self` is the
target as its own draft, which can hardly pay: what it costs to know that. `head` is an EAGLE-3 head
that is right, `wrong head` the same over a target that says other things. Of each three engines
take turns: without drafts, with prompt lookup alone, and with what is tried alone. Answers are
sampled: greedily these models repeat themselves, and lookup has it all. All are compared: a token
that differs is an error. Figures are time per token over time without drafts.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.bench_speculation import KINDS, Taken, answered, prompts_of
from benchmarks.draft_models import load_pair, made_of_smollm2, with_a_head
from benchmarks.report import Row, exit_code, median_row, print_table, write_json
from engine.offline.replica import OfflineSetup
from engine.step.drafting.draft import Draft
from engine.step.engine import Engine

NEVER_SLOWER = 1.02
LAYERS, DAMPING = 3, 0.15
TEMPERATURE = 1.0
HEADED = 0.02
"""What the layers of a target say that the head is made for."""


def main() -> int:
    """1 when a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=128, help="of an answer, at most")
    parser.add_argument("--layers", type=int, default=LAYERS, help="of the draft")
    parser.add_argument("--damping", type=float, default=DAMPING, help="of the target's others")
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--only", nargs="+", help="of draft, self, head and 'wrong head'")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    prompts = prompts_of(KINDS["chat"])
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        pair = made_of_smollm2(Path(folder), num_layers=args.layers, damping=args.damping)
        headed = with_a_head(Path(folder) / "headed", damping=HEADED)
        for name, target, draft in (
            ("draft", pair.target, pair.draft),
            ("self", pair.target, pair.target),
            ("head", headed.target, headed.draft),
            ("wrong head", pair.target, headed.draft),
        ):
            if args.only and name not in args.only:
                continue
            engines = _engines(target, draft, args.threads)
            for streams in args.streams:
                rounds = [
                    _round(engines, prompts, streams, args.tokens) for _ in range(args.rounds + 1)
                ]
                rows += _rows(name, streams, rounds[1:])  # the first warms up
    print_table(f"draft model, made of SmolLM2, {args.threads} threads", rows)
    write_json(args.json, "draft_model", rows)
    return exit_code(rows)


def _engines(target: Path, draft: Path, num_threads: int) -> dict[str, Engine]:
    replica = load_pair(target, draft, num_threads=num_threads)
    options = OfflineSetup(num_threads=num_threads).options
    return {
        "off": Engine(replica, replace(options, speculation="off")),
        "ngram": Engine(replica, replace(options, speculation="ngram")),
        "drafts": Engine(replica, replace(options, speculation=str(draft)), make_guesser=_nobody),
    }


class _Silent:
    """A Guesser without a guess: what is tried is timed without prompt lookup."""

    def guess(self, token_ids: Sequence[int], most: int, least: float = 0.0) -> Draft | None:
        return None


def _nobody(num_prompt: int, prediction: Sequence[int]) -> _Silent:
    return _Silent()


def _round(
    engines: dict[str, Engine], prompts: list[list[int]], streams: int, max_tokens: int
) -> dict[str, Taken]:
    """Every prompt once at 1 stream; twice the streams at more."""
    taken = {way: Taken() for way in engines}
    work = [prompts[i % len(prompts)] for i in range(len(prompts) if streams == 1 else 2 * streams)]
    for number, batch in enumerate([[prompt] for prompt in work] if streams == 1 else [work]):
        for way in list(engines)[:: 1 if number % 2 else -1]:
            done = answered(
                engines[way], batch, max_tokens, streams=streams, temperature=TEMPERATURE
            )
            taken[way].add(done)
    if any(each.texts != taken["off"].texts for each in taken.values()):
        raise RuntimeError("answers with drafts differ from those without")
    return taken


def _rows(name: str, streams: int, rounds: list[dict[str, Taken]]) -> list[Row]:
    what = f"{name}, {streams} stream{'s' if streams > 1 else ''}"
    rows = []
    for way, name in (("drafts", "with drafts"), ("ngram", "with lookup alone")):
        ratios = [one[way].ms_per_token / one["off"].ms_per_token for one in rounds]
        goal = NEVER_SLOWER if way == "drafts" else None
        rows.append(median_row(f"{what}: time {name} / without", ratios, "x", goal=goal))
    for way in ("off", "ngram", "drafts"):
        values = [one[way].ms_per_token for one in rounds]
        rows.append(median_row(f"{what}, {way}", values, "ms per token"))
    drafted = [one["drafts"] for one in rounds]
    per_step = [one.num_tokens / one.num_steps for one in drafted]
    rows.append(median_row(f"{what}: tokens per step", per_step, "tokens"))
    kept = [100 * one.num_kept / max(1, one.num_tried) for one in drafted]
    rows.append(median_row(f"{what}: tokens of drafts kept", kept, "%"))
    return rows


if __name__ == "__main__":
    raise SystemExit(main())
