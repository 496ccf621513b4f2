"""Several peers behind a network as cruel as NIXL: links with a rate, hangs, breaks, ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from kernels.dispatch.block_digest import block_digest
from kvtransfer.block_read import ReadTools
from kvtransfer.local_pool import LocalPool
from kvtransfer.loopback import LoopbackFaults, LoopbackNetwork, LoopbackTransport
from kvtransfer.read_job import ReadJob, ReadResult
from kvtransfer.reader_core import ReaderCore
from tests.kvtransfer.kv_blocks import announced, small_pool

NUM_BLOCKS = 32
PATIENCE_S = 10.0


@dataclass
class CruelFaults(LoopbackFaults):
    """By peer name; a link carries `blocks_per_s`, a fraction is saved up."""

    now: float = 0.0
    blocks_per_s: dict[str, float] = field(default_factory=dict)
    hanging: set[str] = field(default_factory=set)
    breaking: set[str] = field(default_factory=set)
    refusing: set[str] = field(default_factory=set)
    flips: int = 0
    """This many of the next arrivals have a bit flipped."""
    _credit: dict[str, tuple[float, float]] = field(default_factory=dict)

    def num_landing(self, peer: str, num_under_way: int) -> int:
        if peer in self.hanging:
            return 0
        if peer not in self.blocks_per_s:
            return num_under_way
        at, saved = self._credit.get(peer, (self.now, 0.0))
        saved = min(saved + (self.now - at) * self.blocks_per_s[peer], float(NUM_BLOCKS))
        count = min(int(saved), num_under_way)
        self._credit[peer] = (self.now, saved - count)
        return count

    def breaks(self, peer: str) -> bool:
        return peer in self.breaking

    def refuses(self, peer: str) -> bool:
        return peer in self.refusing

    def after_blocks(self, source: LocalPool, target: LocalPool, local_ids: list[int]) -> None:
        if self.flips:
            self.flips -= 1
            target.blocks[local_ids[0]].view(torch.uint8).view(-1)[7] ^= 128


class CruelNetwork:
    """Peers by name, each with 32 random blocks, and a reader with 32 slots, turned by hand."""

    def __init__(self, *names: str, span_blocks: int = 1) -> None:
        self.network, self.faults = LoopbackNetwork(), CruelFaults()
        self.target = small_pool(NUM_BLOCKS)
        self.transport = LoopbackTransport(
            self.target, "d", network=self.network, faults=self.faults
        )
        tools = ReadTools(
            transport=self.transport,
            pool=self.target,
            digest=block_digest,
            span_blocks=span_blocks,
        )
        self.core = ReaderCore(tools, patience_s=PATIENCE_S, clock=lambda: self.faults.now)
        self.pools = {name: small_pool(NUM_BLOCKS, seed=i) for i, name in enumerate(names)}
        self.exporters = {
            name: LoopbackTransport(pool, name, network=self.network)
            for name, pool in self.pools.items()
        }
        for name in names:
            self.connect(name)

    def connect(self, name: str) -> None:
        """Also after the peer had died."""
        self.core.connect(name, self.exporters[name].describe())

    def die(self, name: str) -> None:
        """Its process is gone; nobody has told the reader."""
        self.network.withdraw(name)

    def job(
        self, name: str, remote: Sequence[int], local: Sequence[int], request_id: str = "r"
    ) -> ReadJob:
        """Truthful."""
        job = announced(self.pools[name], remote, local, request_id=request_id)
        return replace(job, incarnation=name)

    def turn(self, seconds: float = 0.05) -> list[ReadResult]:
        """Time passes, whatever is under way goes on, then one turn."""
        self.faults.now += seconds
        self.transport.go_on()
        return self.core.turn()[0]

    def turns(self, seconds: float) -> dict[str, ReadResult]:
        """By request; every job has a request of its own."""
        results: dict[str, ReadResult] = {}
        until = self.faults.now + seconds
        while self.faults.now < until:
            for result in self.turn():
                assert result.job.request_id not in results
                results[result.job.request_id] = result
        return results
