"""Steps with adapters beside those of the model alone, in one engine: sixteen sequences that
decode, by one adapter and by eight, and a prompt of 512 tokens.

    python -m benchmarks.bench_adapters [--threads 2] [--rounds 9] [--ranks 8 16] [--weights auto]
                                        [--json PATH]

Adapters are random, on all seven matrices of every layer, in the precision that is served. Kinds
take turns within a round, and the model alone comes before and behind them; a ratio is the time of
a kind over that of the model alone in the same round, and the goal is 0.8 of its speed. With one
thread, time is the thread's own on its core, which a busy machine stretches little. Floor: as long
as the model alone takes, and its adapters' matrices read once, or multiplied with, at the rate
measured here.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import msgspec
import torch
from safetensors.torch import save_file

from benchmarks.bench_peers import fresh
from benchmarks.peers.floors import Floors, measure_floors
from benchmarks.report import Row, exit_code, median_row, print_table, write_json
from cluster.deadline import Clock
from cluster.models.adapters.files import read_adapter
from cluster.models.adapters.targets import adapter_targets, values_per_lora_rank
from cluster.models.card import DecoderConfig
from cluster.models.model_split import ModelSplit
from engine.contract.adapters import LoadAdapter
from engine.contract.commands import GenerateRequest, Submit
from engine.offline.replica import OfflineSetup, greedy_request, offline_spec
from engine.process.threads import use_threads_to_load, use_threads_to_serve
from engine.runner.replica import load_replica
from engine.step.engine import Engine

BATCH, CONTEXT, NEW_TOKENS, NUM_ADAPTERS, PROMPT = 16, 64, 24, 8, 512
SLOWER_GOAL = 1 / 0.8


@dataclass(frozen=True, slots=True)
class Kind:
    """Whose sequences a step has."""

    name: str
    rank: int = 0
    digests: Sequence[str] = ()


@dataclass(slots=True)
class Work:
    """Milliseconds of one kind of work, by kind of sequences and round."""

    name: str
    take: Callable[[Kind], float]
    kinds: Sequence[Kind]
    beside_ms: Callable[[Kind], float]
    """What the hardware takes for a kind beyond what it takes for the model alone."""
    taken: dict[str, list[float]] = field(default_factory=dict)

    def round(self) -> None:
        """The model alone first and last."""
        alone, *others = self.kinds
        first = self.take(alone)
        for kind in others:
            self.taken.setdefault(kind.name, []).append(self.take(kind))
        self.taken.setdefault(alone.name, []).append((first + self.take(alone)) / 2)

    def rows(self) -> list[Row]:
        """The first round is not counted."""
        alone = self.taken[self.kinds[0].name][1:]
        rows: list[Row] = []
        for kind in self.kinds:
            values = self.taken[kind.name][1:]
            name, floor_ms = f"{self.name}, {kind.name}", median(alone) + self.beside_ms(kind)
            rows.append(median_row(name, values, "ms", floor_ms if kind.digests else None))
            if kind.digests:
                ratios = [one / other for one, other in zip(values, alone, strict=True)]
                floor = floor_ms / median(alone)
                rows.append(median_row(f"{name}: over alone", ratios, "x", floor, SLOWER_GOAL))
        return rows


def save_random(folder: Path, config: DecoderConfig, rank: int, seed: int) -> None:
    """As PEFT would, in bfloat16."""
    folder.mkdir()
    made, tensors = torch.Generator().manual_seed(seed), dict[str, torch.Tensor]()
    for module, stored in adapter_targets(config).items():
        outputs, inputs = stored.shape
        for half, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
            name = f"base_model.model.{module}.lora_{half}.weight"
            tensors[name] = (torch.randn(shape, generator=made) / 100).bfloat16()
    save_file(tensors, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": rank}
    (folder / "adapter_config.json").write_bytes(msgspec.json.encode(settings))


def engine_with(
    setup: OfflineSetup, root: Path, ranks: Sequence[int]
) -> tuple[Engine, dict[int, list[str]]]:
    """With all adapters in memory, and their digests by rank."""
    spec = offline_spec(setup)
    options = replace(spec.options, adapters=str(root), adapter_ranks=NUM_ADAPTERS * sum(ranks))
    use_threads_to_load(options.num_threads)
    replica = load_replica(msgspec.structs.replace(spec, options=options), lambda *_: None)
    use_threads_to_serve(replica.kv.device)
    engine, digests = Engine(replica, options), dict[int, list[str]]()
    for rank in ranks:
        digests[rank] = [
            _load(engine, root, spec.card.config, rank, seed) for seed in range(NUM_ADAPTERS)
        ]
    resident: set[str] = set()
    while len(resident) < NUM_ADAPTERS * len(ranks):
        resident |= {news.digest for news in engine.step().adapters if news.is_resident}
    return engine, digests


def _load(engine: Engine, root: Path, config: DecoderConfig, rank: int, seed: int) -> str:
    folder = root / f"adapter-{rank}-{seed}"
    save_random(folder, config, rank, seed)
    digest = read_adapter(root, folder, config).digest
    engine.apply(LoadAdapter(digest=digest, root=str(root), folder=str(folder), lora_rank=rank))
    return digest


def decode_ms(engine: Engine, chance: random.Random, kind: Kind, clock: Clock) -> float:
    """Of a step in which all sequences decode: the median of an answer's."""
    _submit(engine, fresh(chance, BATCH, CONTEXT), kind.digests, 1 + NEW_TOKENS)
    taken, num_left = list[float](), BATCH
    while num_left:
        began_s = clock()
        frame = engine.step()
        if len(frame.tokens) == BATCH:
            taken.append(clock() - began_s)
        num_left -= len(frame.ended)
    return median(taken) * 1e3


def prefill_ms(engine: Engine, chance: random.Random, kind: Kind, clock: Clock) -> float:
    """Of the step that computes a prompt."""
    _submit(engine, fresh(chance, 1, PROMPT), kind.digests, 1)
    began_s = clock()
    while not engine.step().ended:
        pass
    return (clock() - began_s) * 1e3


def _submit(
    engine: Engine, prompts: list[list[int]], digests: Sequence[str], num_tokens: int
) -> None:
    for at, prompt in enumerate(prompts):
        digest = digests[at % len(digests)] if digests else ""
        engine.apply(Submit(_request(str(at), prompt, num_tokens, digest)))


def _request(name: str, prompt: list[int], num_tokens: int, digest: str) -> GenerateRequest:
    return msgspec.structs.replace(greedy_request(name, prompt, num_tokens), adapter=digest)


def works(
    engine: Engine, digests: dict[int, list[str]], floors: Floors, threads: int
) -> list[Work]:
    """What each round does."""
    alone, chance = Kind("the model alone"), random.Random(0)
    clock = time.thread_time if threads == 1 else time.perf_counter
    values = values_per_lora_rank(ModelSplit(config=floors.card.config))
    one = [Kind(f"one of rank {rank}", rank, found[:1]) for rank, found in digests.items()]
    eight = [Kind(f"eight of rank {rank}", rank, found) for rank, found in digests.items()]

    return [
        Work(
            "decode 16",
            lambda kind: decode_ms(engine, chance, kind, clock),
            [alone, *one, *eight],
            lambda kind: floors.memory.read_ms(len(kind.digests) * kind.rank * values * 2.0),
        ),
        Work(
            f"prefill {PROMPT}",
            lambda kind: prefill_ms(engine, chance, kind, clock),
            [alone, *one],
            lambda kind: floors.memory.compute_ms(2.0 * PROMPT * kind.rank * values),
        ),
    ]


def main() -> int:
    """1 where a goal is missed; the load of the machine is printed beside the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    floors = measure_floors(args.threads)
    setup = OfflineSetup(num_threads=args.threads, weights=args.weights)
    with tempfile.TemporaryDirectory() as folder:
        engine, digests = engine_with(setup, Path(folder), args.ranks)
        measured = works(engine, digests, floors, args.threads)
        for _ in range(args.rounds + 1):
            for work in measured:
                work.round()
    rows = [row for work in measured for row in work.rows()]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print_table(f"{args.threads} threads, weights {args.weights}; load {load}", rows)
    write_json(args.json, "adapters", rows)
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
