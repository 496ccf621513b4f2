"""KV blocks between two processes over NIXL, beside the copy of the same bytes within one process.

    python -m benchmarks.bench_transfer [--tcp] [--spans] [--json FILE]

A block is one of SmolLM2-135M in bfloat16: 368,640 bytes. Readings with and without verification
and the memcpy take turns, over blocks that are in no cache; a figure is the median, from submit
until the result has woken the caller. `--tcp` forbids shared memory; `--spans` compares span sizes.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.report import Row, exit_code, percentile, print_table, write_json
from cluster.errors import TransferFailed
from cluster.home import kernels_folder
from cluster.identity import new_incarnation
from kernels.cpu.native_library import open_library
from kernels.dispatch.block_digest import block_digest
from kvtransfer.block_reader import SPAN_BYTES, BlockReader
from kvtransfer.local_pool import LocalPool
from kvtransfer.nixl_transport import NixlTransport
from kvtransfer.read_job import ReadJob
from kvtransfer.selftest import selftest_peer
from kvtransfer.selftest_peer import BLOCK_BYTES, BLOCK_SHAPE, Offer
from kvtransfer.verification import digest_bytes

NUM_BLOCKS = 256
SIZES = (1, 4, 16, 64)
SPANS = (1, 2, 4, 8, 16, 64)
ROUNDS = 30
RESULT_TIMEOUT_S = 30.0
MAX_TIMES_MEMCPY = 4.0
"""Goal for 64 verified blocks: one copy by the kernel, one pass of the digest, and their misses."""


@dataclass(slots=True)
class Intake:
    """A reader with a pool of its own, and the wake-up of its caller."""

    reader: BlockReader
    pool: LocalPool
    arrived: threading.Event

    def read(self, offer: Offer, first: int, num_blocks: int) -> float:
        """Milliseconds from submit until the result is there; raises TransferFailed."""
        ids = range(first, first + num_blocks)
        job = ReadJob(
            request_id="bench",
            incarnation=offer.incarnation,
            span=offer.span(ids),
            local_block_ids=ids,
        )
        self.arrived.clear()
        start = time.perf_counter()
        self.reader.submit(job)
        if not self.arrived.wait(RESULT_TIMEOUT_S):
            raise TransferFailed(f"no result within {RESULT_TIMEOUT_S} s")
        elapsed_ms = (time.perf_counter() - start) * 1e3
        (result,) = self.reader.poll()
        if result.error:
            raise TransferFailed(result.error)
        return elapsed_ms


@contextmanager
def intake(*, verify: bool, span_bytes: int = SPAN_BYTES) -> Iterator[Intake]:
    """Closed with the block."""
    blocks = torch.ones((NUM_BLOCKS, *BLOCK_SHAPE), dtype=torch.bfloat16)
    pool = LocalPool(blocks, torch.zeros(NUM_BLOCKS, dtype=torch.int64))
    arrived = threading.Event()
    reader = BlockReader(
        NixlTransport(pool, new_incarnation()),
        pool,
        block_digest if verify else None,
        span_bytes=span_bytes,
        notify=arrived.set,
    )
    try:
        yield Intake(reader, pool, arrived)
    finally:
        reader.close()


def handshake_ms(target: Intake, offer: Offer) -> tuple[float, float]:
    """(peer's address to first block, a block after that)."""
    start = time.perf_counter()
    target.reader.connect(offer.incarnation, offer.peer)
    target.read(offer, 0, 1)
    first = (time.perf_counter() - start) * 1e3
    return first, target.read(offer, 0, 1)


def timed_ms(work: Callable[[], object]) -> float:
    """Milliseconds that `work` takes."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def in_turns(works: dict[str, Callable[[int], float]], num_blocks: int) -> dict[str, list[float]]:
    """Every work once per round, each round at other blocks."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(ROUNDS):
        first = (turn * 67) % (NUM_BLOCKS - num_blocks + 1)
        for name, work in works.items():
            times[name].append(work(first))
    return times


def by_size(offer: Offer, plain: Intake, verified: Intake) -> list[Row]:
    """The rows of the report; the spread goes to stdout."""
    source = torch.ones_like(plain.pool.blocks)
    rows = []
    for n in SIZES:
        times = in_turns(
            {
                "memcpy": lambda i, n=n: timed_ms(
                    lambda: plain.pool.blocks[i : i + n].copy_(source[i : i + n])
                ),
                "plain": lambda i, n=n: plain.read(offer, i, n),
                "verified": lambda i, n=n: verified.read(offer, i, n),
                "digest": lambda i, n=n: timed_ms(
                    lambda: digest_bytes(block_digest, verified.pool.blocks, range(i, i + n))
                ),
            },
            n,
        )
        rows += rows_of(n, times)
    return rows


def rows_of(num_blocks: int, times: dict[str, list[float]]) -> list[Row]:
    """One row per way of moving the blocks; prints the spread and the rate."""
    floor = percentile(times["memcpy"], 50)
    rows = []
    for name in ("plain", "verified", "digest"):
        median = percentile(times[name], 50)
        goal = floor * MAX_TIMES_MEMCPY if (name, num_blocks) == ("verified", 64) else None
        rows.append(Row(f"{name}, {num_blocks} blocks", median, "ms", floor, goal))
        low, high = percentile(times[name], 10), percentile(times[name], 90)
        rate = num_blocks * BLOCK_BYTES / median / 1e6
        print(
            f"  {name:9} {num_blocks:3} blocks {median:8.3f} ms (p10 {low:.3f}, p90 {high:.3f})"
            f" {rate:6.2f} GB/s; memcpy {num_blocks * BLOCK_BYTES / floor / 1e6:.2f} GB/s"
        )
    return rows


def idle_cpu_percent() -> float:
    """Of one core, by every thread of this process, while connected and doing nothing."""
    start_cpu, start = time.process_time(), time.perf_counter()
    time.sleep(1.0)
    return 100 * (time.process_time() - start_cpu) / (time.perf_counter() - start)


def compare_spans(offer: Offer) -> None:
    """Prints the time of 64 verified blocks by blocks per span."""
    for span_blocks in SPANS:
        with intake(verify=True, span_bytes=span_blocks * BLOCK_BYTES) as target:
            handshake_ms(target, offer)
            works = {"verified": lambda i, t=target: t.read(offer, i, 64)}
            times = in_turns(works, 64)["verified"]
        low, high = percentile(times, 10), percentile(times, 90)
        median = percentile(times, 50)
        print(f"  {span_blocks:3} blocks a span {median:8.3f} ms (p10 {low:.3f}, p90 {high:.3f})")


def measure(path: Path | None, *, over_tcp: bool) -> int:
    """Prints and keeps the report; 1 when a goal is missed. TCP has no goal, and is not kept."""
    with (
        intake(verify=False) as plain,
        intake(verify=True) as verified,
        selftest_peer(NUM_BLOCKS) as peer,  # the readers load UCX while this process starts
    ):
        first, second = handshake_ms(plain, peer.offer)
        handshake_ms(verified, peer.offer)
        rows = [
            Row("handshake, to the first block", first, "ms"),
            Row("one block after the handshake", second, "ms"),
            *by_size(peer.offer, plain, verified),
            Row("idle CPU of two connected readers", idle_cpu_percent(), "% of a core", goal=2.0),
        ]
        print_table(f"transfer over {plain.reader.transport_in_use}", rows)
    if over_tcp:
        return 0
    write_json(path, "transfer", rows)
    return exit_code(rows)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tcp", action="store_true")
    parser.add_argument("--spans", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    open_library(kernels_folder())  # the digests' code, as engines have it
    if options.tcp:
        os.environ["UCX_TLS"] = "tcp,self"
    if not options.spans:
        return measure(options.json, over_tcp=options.tcp)
    with selftest_peer(NUM_BLOCKS) as peer:
        compare_spans(peer.offer)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
