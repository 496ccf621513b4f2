"""The prefix index: matching a 2048-token prompt among 256k blocks of 64 workers.

    python benchmarks/bench_index.py [--json PATH]

2000 prompts of 2048 tokens share 50 prefixes of 1024; block size 16. A match starts from the list
of token ids: packing, walking and the per-worker result are all in it. The floor is what cannot be
avoided: comparing the prompt's 8 KB once. Figures of one run, interleaved.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

from cluster.block_hash import cache_root, chain_names, pack_tokens
from cluster.cache_change import CacheChange, CachedBlock
from cluster.identity import WorkerKey
from router.index.prefix_index import PrefixIndex

VOCABULARY = 49_152
BLOCK_SIZE_TOKENS = 16
ROOT = cache_root("benchmark")
WORKERS = [WorkerKey(f"worker-{number}", "i") for number in range(64)]


def make_prompts(rng: random.Random, num_prompts: int) -> list[list[int]]:
    """Prompts of 2048 tokens; each begins with one of 50 prefixes of 1024."""
    prefixes = [[rng.randrange(VOCABULARY) for _ in range(1024)] for _ in range(50)]
    return [
        rng.choice(prefixes) + [rng.randrange(VOCABULARY) for _ in range(1024)]
        for _ in range(num_prompts)
    ]


def blocks_of(prompt: list[int]) -> list[CachedBlock]:
    """As a worker would report them."""
    size = BLOCK_SIZE_TOKENS
    names = chain_names(pack_tokens(prompt), parent=ROOT, block_size_tokens=size)
    parents = [None, *names]
    return [
        CachedBlock(name, parents[i], prompt[i * size : (i + 1) * size])
        for i, name in enumerate(names)
    ]


def fill(index: PrefixIndex, prompts: list[list[int]], rng: random.Random) -> float:
    """Stores every prompt at some worker, as events; returns blocks per second."""
    changes = [CacheChange(stored=blocks_of(prompt)) for prompt in prompts]
    start = time.perf_counter()
    for change in changes:
        index.apply(rng.choice(WORKERS), change)
    took_s = time.perf_counter() - start
    return sum(len(change.stored) for change in changes) / took_s


def timed_us(work: Callable[[], object]) -> float:
    """One call, in microseconds."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e6


def percentiles(took_us: list[float]) -> dict[str, float]:
    """Microseconds."""
    ordered = sorted(took_us)
    return {
        "p50_us": round(ordered[len(ordered) // 2], 2),
        "p99_us": round(ordered[len(ordered) * 99 // 100], 2),
    }


def one_round(index: PrefixIndex, prompt: list[int], worker: WorkerKey) -> dict[str, float]:
    """Each kind of work once, in microseconds."""
    packed, other = pack_tokens(prompt), pack_tokens(prompt)
    return {
        "match": timed_us(lambda: index.match(ROOT, pack_tokens(prompt), BLOCK_SIZE_TOKENS)),
        "packing": timed_us(lambda: pack_tokens(prompt)),
        "memcmp": timed_us(lambda: packed == other),
        "expect": timed_us(lambda: index.expect([worker], ROOT, packed)),
    }


def measure(index: PrefixIndex, prompts: list[list[int]], rng: random.Random) -> dict[str, object]:
    """Interleaves the match, its parts, the insertion of a routed prompt, and the floor."""
    took: dict[str, list[float]] = {name: [] for name in ("match", "packing", "expect", "memcmp")}
    for _ in range(3000):
        for name, took_us in one_round(index, rng.choice(prompts), rng.choice(WORKERS)).items():
            took[name].append(took_us)
    return {name: percentiles(values) for name, values in took.items()}


def main() -> None:
    """Prints a table; --json writes the same."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=None)
    json_path = parser.parse_args().json
    rng = random.Random(1)
    index = PrefixIndex(max_blocks=1_000_000)
    for worker in WORKERS:
        index.add_worker(worker, BLOCK_SIZE_TOKENS)
    prompts = make_prompts(rng, 2000)
    blocks_per_s = fill(index, prompts, rng)
    gc.collect()
    gc.freeze()  # as the router does after start
    result = measure(index, prompts, rng) | {"events_blocks_per_s": round(blocks_per_s)}
    print(f"events: {blocks_per_s:,.0f} blocks/s into {index.num_blocks:,} blocks")
    for name in ("match", "packing", "expect", "memcmp"):
        row = result[name]
        assert isinstance(row, dict)
        print(f"{name:8} p50 {row['p50_us']:7.2f} us   p99 {row['p99_us']:7.2f} us")
    if json_path is not None:
        json_path.write_text(json.dumps({"index": result}, indent=2) + "\n")


if __name__ == "__main__":
    main()
