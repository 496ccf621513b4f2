"""The prefix index: matching a 2048-token prompt among 256k blocks of 64 workers.

    python -m benchmarks.bench_index [--json PATH]

2000 prompts of 2048 tokens share 50 prefixes of 1024; block size 16. A match starts from the list
of token ids: packing, walking and the per-worker result are all in it. The floor is what cannot be
avoided: comparing the prompt's 8 KB once. Figures of one run, interleaved.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from benchmarks.goals import INDEX_P50_US
from benchmarks.report import Row, exit_code, percentile, print_table, write_json
from cluster.block_hash import cache_root, chain_names, pack_tokens
from cluster.cache_change import CacheChange, CachedBlock
from cluster.identity import WorkerKey
from router.index.open_expectations import Expectation
from router.index.prefix_index import PrefixIndex

VOCABULARY = 49_152
BLOCK_SIZE_TOKENS = 16
CALLS = 3000
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


def one_round(index: PrefixIndex, prompt: list[int], worker: WorkerKey) -> dict[str, float]:
    """Each kind of work once, in microseconds."""
    packed, other = pack_tokens(prompt), pack_tokens(prompt)
    open_ones: list[Expectation] = []
    took = {
        "match": timed_us(lambda: index.match(ROOT, pack_tokens(prompt), BLOCK_SIZE_TOKENS)),
        "packing": timed_us(lambda: pack_tokens(prompt)),
        "memcmp": timed_us(lambda: packed == other),
        "expect": timed_us(lambda: open_ones.append(index.expect([worker], ROOT, packed))),
    }
    open_ones[0].settle(came_true=True)
    return took


def measure(
    index: PrefixIndex, prompts: list[list[int]], rng: random.Random
) -> dict[str, list[float]]:
    """Interleaves the match, its parts, the insertion of a routed prompt, and the floor."""
    took: dict[str, list[float]] = defaultdict(list)
    for _ in range(CALLS):
        for name, took_us in one_round(index, rng.choice(prompts), rng.choice(WORKERS)).items():
            took[name].append(took_us)
    return took


def rows_of(took: dict[str, list[float]], blocks_per_s: float) -> list[Row]:
    """p50 and p99 of each kind of work, beside the comparison of 8 KB."""
    floor = percentile(took["memcmp"], 50)
    rows = []
    for name in ("match", "packing", "expect"):
        goal = INDEX_P50_US if name == "match" else None
        rows.append(Row(f"{name}, p50", percentile(took[name], 50), "us", floor, goal))
        rows.append(Row(f"{name}, p99", percentile(took[name], 99), "us", floor))
    return [*rows, Row("events, per block", 1e6 / blocks_per_s, "us")]


def main() -> int:
    """Exit code 1 when the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rng = random.Random(1)
    index = PrefixIndex(max_blocks=1_000_000)
    for worker in WORKERS:
        index.add_worker(worker, BLOCK_SIZE_TOKENS)
    prompts = make_prompts(rng, 2000)
    blocks_per_s = fill(index, prompts, rng)
    gc.collect()
    gc.freeze()  # as the router does after start
    rows = rows_of(measure(index, prompts, rng), blocks_per_s)
    print_table(f"prefix index of {index.num_blocks:,} blocks at {len(WORKERS)} workers", rows)
    write_json(options.json, "index", rows)
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
