"""A real transfer between two processes of this machine, for `splitserve doctor`."""

from __future__ import annotations

import math
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
import torch

from cluster.errors import TransferFailed
from cluster.home import kernels_folder
from cluster.identity import new_incarnation
from cluster.process.own_python import module_argv, module_environ
from kernels.cpu.native_library import open_library
from kernels.dispatch.block_digest import block_digest
from kvtransfer.block_reader import BlockReader
from kvtransfer.local_pool import LocalPool
from kvtransfer.nixl_transport import NixlTransport
from kvtransfer.read_job import ReadJob, ReadResult
from kvtransfer.selftest_peer import BLOCK_BYTES, BLOCK_SHAPE, Offer

START_TIMEOUT_S = 60.0
"""For the other process to import torch and NIXL on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelftestReport:
    """What was measured."""

    transport: str
    """The link in use, in words."""
    num_bytes: int
    """Transferred by each of the readings."""
    handshake_ms: float
    """From the peer's address to the first verified block; UCX is loaded by then."""
    gb_per_s: float
    """Of the fastest of three readings, verification included; 1 GB is 10**9 bytes."""


class SelftestPeer:
    """The other process. Ends with `close`, which is idempotent."""

    def __init__(self, num_blocks: int) -> None:
        """Raises TransferFailed when the process does not come up."""
        self.process = subprocess.Popen(
            module_argv("kvtransfer.selftest_peer", str(num_blocks)),
            env=dict(os.environ) | module_environ(),  # the C library's, libraries have had in hand
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.offer = self._read_offer()

    def _read_offer(self) -> Offer:
        assert self.process.stdout is not None
        guard = threading.Timer(START_TIMEOUT_S, self.process.kill)
        guard.start()
        try:
            return msgspec.json.decode(self.process.stdout.readline(), type=Offer)
        except msgspec.DecodeError as error:
            self.close()
            raise TransferFailed(
                f"the peer of the self-test ended with {self.process.returncode} instead of "
                f"offering its blocks within {START_TIMEOUT_S} s; its output is above"
            ) from error
        finally:
            guard.cancel()

    def close(self) -> None:
        """Ends the process and its pipes."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def selftest_peer(num_blocks: int) -> Iterator[SelftestPeer]:
    """A peer that ends with the block."""
    peer = SelftestPeer(num_blocks)
    try:
        yield peer
    finally:
        peer.close()


def run_selftest(*, megabytes: int = 16, timeout_s: float = 30.0) -> SelftestReport:
    """Transfers and verifies `megabytes` MiB from a new process, three times.

    Raises TransferFailed when it does not work, ConfigError when NIXL is not installed.
    """
    open_library(kernels_folder())  # the digests' code, as engines have it
    num_blocks = max(1, math.ceil(megabytes * 2**20 / BLOCK_BYTES))
    blocks = torch.zeros((num_blocks, *BLOCK_SHAPE), dtype=torch.bfloat16)
    pool = LocalPool(blocks, torch.zeros(num_blocks, dtype=torch.int64))
    reader = BlockReader(NixlTransport(pool, new_incarnation()), pool, block_digest)
    try:
        with selftest_peer(num_blocks) as peer:
            return _measure(reader, peer.offer, num_blocks, timeout_s)
    finally:
        reader.close()


def read_offer(
    reader: BlockReader, offer: Offer, num_blocks: int, *, timeout_s: float
) -> ReadResult:
    """Reads the first blocks of an offer into the same slots; raises TransferFailed if it fails."""
    job = ReadJob(
        request_id="selftest",
        incarnation=offer.incarnation,
        span=offer.span(range(num_blocks)),
        local_block_ids=range(num_blocks),
    )
    reader.submit(job)
    result = _wait(reader, timeout_s)
    if result.error:
        raise TransferFailed(f"the self-test of the KV transfer failed: {result.error}")
    return result


def _wait(reader: BlockReader, timeout_s: float) -> ReadResult:
    limit = time.monotonic() + timeout_s
    while time.monotonic() < limit:
        for result in reader.poll():
            return result
        time.sleep(50e-6)
    raise TransferFailed(f"the self-test of the KV transfer did not end within {timeout_s} s")


def _measure(
    reader: BlockReader, offer: Offer, num_blocks: int, timeout_s: float
) -> SelftestReport:
    start = time.perf_counter()
    reader.connect(offer.incarnation, offer.peer)
    read_offer(reader, offer, 1, timeout_s=timeout_s)
    handshake_ms = (time.perf_counter() - start) * 1e3
    readings = [read_offer(reader, offer, num_blocks, timeout_s=timeout_s) for _ in range(3)]
    best = min(readings, key=lambda result: result.duration_ms)
    return SelftestReport(
        transport=reader.transport_in_use,
        num_bytes=best.num_bytes,
        handshake_ms=handshake_ms,
        gb_per_s=best.num_bytes / best.duration_ms / 1e6,
    )
