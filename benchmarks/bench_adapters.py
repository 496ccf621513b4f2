"""Decode steps of 16 sequences by the model alone, by one adapter and by eight, in one engine.

    python -m benchmarks.bench_adapters [--threads 2] [--rounds 7] [--rank 8] [--weights auto]
                                        [--json PATH]

Adapters are random, on all seven matrices of every layer, in the precision that is served. Kinds
take turns within a round; a ratio is that of the model alone in the same round. With one thread,
time is the thread's own on its core, which a busy machine stretches little. Floor: as long as the
model alone takes, and its adapters' matrices read once at the rate measured here.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import msgspec
import torch
from safetensors.torch import save_file

from benchmarks.bench_peers import fresh
from benchmarks.peers.floors import measure_floors
from benchmarks.report import Row, median_row, print_table, write_json
from cluster.deadline import Clock
from cluster.models.adapters.files import read_adapter
from cluster.models.adapters.targets import adapter_targets, values_per_rank
from cluster.models.card import DecoderConfig
from cluster.models.model_split import ModelSplit
from engine.contract.adapters import LoadAdapter
from engine.contract.commands import GenerateRequest, Submit
from engine.offline.replica import OfflineSetup, greedy_request, offline_spec
from engine.process.threads import use_threads_to_load, use_threads_to_serve
from engine.runner.replica import load_replica
from engine.step.engine import Engine

BATCH, CONTEXT, NEW_TOKENS, NUM_ADAPTERS = 16, 64, 24, 8
KINDS = {"the model alone": 0, "one adapter": 1, "eight adapters": NUM_ADAPTERS}


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


def engine_with(setup: OfflineSetup, root: Path, rank: int) -> tuple[Engine, list[str]]:
    """With all adapters in memory, and their digests."""
    spec = offline_spec(setup)
    config = spec.card.config
    ranks = NUM_ADAPTERS * rank
    options = replace(spec.options, adapters=str(root), adapter_ranks=ranks)
    use_threads_to_load(options.num_threads)
    replica = load_replica(msgspec.structs.replace(spec, options=options), lambda *_: None)
    use_threads_to_serve(replica.kv.device)
    engine, digests = Engine(replica, options), list[str]()
    for seed in range(NUM_ADAPTERS):
        folder = root / f"adapter-{seed}"
        save_random(folder, config, rank, seed)
        digests.append(read_adapter(root, folder, config).digest)
        engine.apply(LoadAdapter(digest=digests[-1], root=str(root), folder=str(folder), rank=rank))
    resident: set[str] = set()
    while len(resident) < NUM_ADAPTERS:
        resident |= {news.digest for news in engine.step().adapters if news.is_resident}
    return engine, digests


def step_ms(
    engine: Engine, prompts: list[list[int]], digests: Sequence[str], clock: Clock
) -> float:
    """Of a step in which all sequences decode: the median of an answer's."""
    for at, prompt in enumerate(prompts):
        digest = digests[at % len(digests)] if digests else ""
        engine.apply(Submit(_request(str(at), prompt, 1 + NEW_TOKENS, digest)))
    taken, num_left = list[float](), len(prompts)
    while num_left:
        began_s = clock()
        frame = engine.step()
        if len(frame.tokens) == len(prompts):
            taken.append(clock() - began_s)
        num_left -= len(frame.ended)
    return median(taken) * 1e3


def _request(name: str, prompt: list[int], num_tokens: int, digest: str) -> GenerateRequest:
    return msgspec.structs.replace(greedy_request(name, prompt, num_tokens), adapter=digest)


def main() -> int:
    """Prints the table, and the load of the machine beside it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    floors, chance = measure_floors(args.threads), random.Random(0)
    setup = OfflineSetup(num_threads=args.threads, weights=args.weights)
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    taken: dict[str, list[float]] = {name: [] for name in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        engine, digests = engine_with(setup, Path(folder), args.rank)
        for number in range(args.rounds + 1):
            prompts = fresh(chance, BATCH, CONTEXT)
            for name, count in KINDS.items():
                value = step_ms(engine, prompts, digests[:count], clock)
                if number:
                    taken[name].append(value)
        config = offline_spec(setup).card.config
    each_bytes = values_per_rank(ModelSplit(config=config)) * args.rank * 2
    alone = taken["the model alone"]
    rows: list[Row] = []
    for name, values in taken.items():
        read_ms = floors.memory.read_ms(KINDS[name] * each_bytes)
        rows.append(
            median_row(name, values, "ms", median(alone) + read_ms if KINDS[name] else None)
        )
        if KINDS[name]:
            ratios = [one / other for one, other in zip(alone, values, strict=True)]
            rows.append(median_row(f"speed of {name} to the model alone", ratios, "x", None))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print_table(f"{BATCH} sequences, rank {args.rank}, weights {args.weights}; load {load}", rows)
    write_json(args.json, "adapters", rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
