"""The whole engine alone, by batch, prompt length and precision, beside what the machine allows.

    python -m benchmarks.bench_engine [--threads 2] [--rounds 7] [--formats auto/auto full/auto]
                                      [--json PATH]

Scheduler, sampler and KV pool are in every figure; no server, no network. A format is WEIGHTS/KV as
the options of `splitserve serve`. Each format runs in a process of its own; they take turns within
a round while the others are stopped. Floors: a step's weights (as this format holds them) and KV
read once, or its multiply-adds at the best rate measured here, 8-bit for 8- and 4-bit weights.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.bench_peers import fresh
from benchmarks.peers.contestant import Contestant, own_entry
from benchmarks.peers.floors import Floors, measure_floors
from benchmarks.plot import plot_rows
from benchmarks.report import Row, median_row, print_table, write_json

FORMATS = ("auto/auto", "full/auto", "int8/auto", "int4/auto", "auto/int8")
BATCHES, PROMPTS = (1, 4, 16, 64), (128, 512, 2048)
CONTEXT, NEW_TOKENS = 256, 32


def one_turn(contestant: Contestant, rng: random.Random) -> dict[str, float]:
    """Milliseconds by kind of work."""
    taken = {}
    for num_seqs in BATCHES:
        first, _ = contestant.generate(fresh(rng, num_seqs, CONTEXT), 1)
        whole, _ = contestant.generate(fresh(rng, num_seqs, CONTEXT), 1 + NEW_TOKENS)
        taken[f"decode, batch of {num_seqs}"] = (whole - first) / NEW_TOKENS * 1e3
    for num_tokens in PROMPTS:
        seconds, _ = contestant.generate(fresh(rng, 1, num_tokens), 1)
        taken[f"prefill, {num_tokens} tokens"] = seconds * 1e3
    return taken


def floors_ms(floors: Floors, weights: str, kv: str) -> dict[str, float]:
    """What the machine allows this format."""
    allowed = floors.of_format(weights, kv)
    steps = {
        f"decode, batch of {n}": allowed.decode_ms(n, CONTEXT + NEW_TOKENS / 2) for n in BATCHES
    }
    return steps | {f"prefill, {n} tokens": allowed.prefill_ms(n) for n in PROMPTS}


def main() -> int:
    """Figures only: goals belong to the comparison with others."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--formats", nargs="+", default=list(FORMATS), metavar="WEIGHTS/KV")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    floors = measure_floors(args.threads)
    taken: dict[str, dict[str, list[float]]] = {name: {} for name in args.formats}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        contestants = {}
        for name in args.formats:
            weights, kv = name.split("/")
            log = Path(folder) / f"{weights}-{kv}.log"
            contestants[name] = Contestant(own_entry("smollm2", args.threads, weights, kv), log)
            stack.callback(contestants[name].group.stop)
        rng = random.Random(0)
        for number in range(args.rounds + 1):
            for name, contestant in contestants.items():
                for key, value in one_turn(contestant, rng).items():
                    if number:
                        taken[name].setdefault(key, []).append(value)
    rows: list[Row] = []
    for name, values in taken.items():
        allowed = floors_ms(floors, *name.split("/"))
        mine = [median_row(key, v, "ms", allowed[key]) for key, v in values.items()]
        print_table(f"engine, weights/KV {name}, {args.threads} threads; {floors}", mine)
        rows += [Row(f"{name}: {r.name}", r.value, r.unit, r.floor, r.goal, r.spread) for r in mine]
    write_json(args.json, "engine", rows)
    if args.json is not None:
        plot_rows("The engine beside its floor", rows, args.json.with_suffix(".png"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
