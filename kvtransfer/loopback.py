"""The transport within one process: a copy between two registered pools. For tests and for tools.

    post -> under way -> lands in parts, when anything is polled, as the faults let it
                 '-- BROKEN: the rest is still under way, and lands later
    abort: everything that is under way is lost, of all peers; as when NIXL's agent ends

As cruel as NIXL where the faults say so: `faults` is the seam, what it answers is what the
"network" does. Without faults a read finishes at its first poll.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from cluster.errors import TransferFailed
from cluster.kv_peer import KvPeer
from kvtransfer.joint_read import post_all
from kvtransfer.local_pool import LocalPool, check_block_ids
from kvtransfer.resharding import Resharding
from kvtransfer.transport import Read, ReadState

TRANSPORT = "loopback"


class LoopbackNetwork:
    """Which pools can be reached. Thread-safe; one for all that shall see each other."""

    def __init__(self) -> None:
        self._pools: dict[str, LocalPool] = {}
        self._lock = threading.Lock()

    def publish(self, name: str, pool: LocalPool) -> None:
        """Makes a pool readable."""
        with self._lock:
            self._pools[name] = pool

    def withdraw(self, name: str) -> None:
        """As if the process had died. Idempotent."""
        with self._lock:
            self._pools.pop(name, None)

    def find(self, name: str) -> LocalPool | None:
        """The pool, while its owner lives."""
        with self._lock:
            return self._pools.get(name)


PROCESS_NETWORK = LoopbackNetwork()


@dataclass(slots=True)
class LoopbackFaults:
    """What goes wrong. The defaults are: nothing. Called on the reading thread; `peer` is the name
    of the pool that is read: of a group, each rank has its own. Of a peer whose blocks have another
    size, what is counted are granules."""

    def num_landing(self, peer: str, num_under_way: int) -> int:
        """How many more blocks of the read at the head of this peer's link land at this poll."""
        return num_under_way

    def breaks(self, peer: str) -> bool:
        """True makes the read BROKEN before it is over."""
        return False

    def refuses(self, peer: str) -> bool:
        """True makes posting fail, though the peer could be connected."""
        return False

    def after_blocks(
        self, source: LocalPool, target: LocalPool, local_block_ids: list[int]
    ) -> None:
        """Bytes have arrived: a place to flip one, or to give the slot at the source away."""


@dataclass(slots=True)
class LoopbackRead:
    """Of one rank. Lands when anything is polled."""

    transport: LoopbackTransport
    source_name: str
    remote_block_ids: list[int]
    local_block_ids: list[int]
    of_generations: bool
    fit: Resharding
    rank: int = 0
    error: str = ""
    num_landed: int = 0
    state: ReadState = field(default=ReadState.PENDING)

    def poll(self) -> ReadState:
        """Lets the whole network go on."""
        self.transport.go_on()
        return self.state

    def fail(self, error: str) -> None:
        """Nothing lands any more. The end, unless there was one before."""
        if not self.state.is_final:
            self.state, self.error = ReadState.FAILED, error

    def land(self) -> None:
        """Some more of it arrives, or none."""
        source = self.transport.network.find(self.source_name)
        if source is None:
            self.fail(f"loopback peer {self.source_name!r} is gone")
            return
        if self.state is ReadState.PENDING and self.transport.faults.breaks(self.source_name):
            self.state, self.error = ReadState.BROKEN, "loopback read broke on purpose"
        under_way = len(self.local_block_ids) - self.num_landed
        size = 1 if self.of_generations else under_way  # generations travel as one
        count = self.transport.faults.num_landing(self.source_name, size)
        if self.of_generations and count:
            count = under_way
        self._copy(source, self.num_landed, self.num_landed + min(count, under_way))
        if self.num_landed == len(self.local_block_ids) and self.state is ReadState.PENDING:
            self.state = ReadState.DONE

    def _copy(self, source: LocalPool, start: int, stop: int) -> None:
        remote, local = self.remote_block_ids[start:stop], self.local_block_ids[start:stop]
        self.num_landed = stop
        if not local:
            return
        if self.of_generations:
            self.transport.generations_read[local] = source.generations[remote]
            return
        self._copy_runs(source.blocks, remote, local)
        slots = [granule // self.fit.target_parts for granule in local]
        self.transport.faults.after_blocks(source, self.transport.pool, slots)

    def _copy_runs(self, source: torch.Tensor, remote: list[int], local: list[int]) -> None:
        """Granule by granule, what of it comes from this rank."""
        there, here = _bytes_of(source), _bytes_of(self.transport.pool.blocks)
        for run in self.fit.of_rank(self.rank):
            for at, to in zip(remote, local, strict=True):
                from_block, from_part = divmod(at, self.fit.source_parts)
                block, part = divmod(to, self.fit.target_parts)
                first, start = run.source + from_part * run.step, run.target + part * run.step
                size = run.num_bytes
                here[block, start : start + size] = there[from_block, first : first + size]

    @property
    def is_under_way(self) -> bool:
        """True while anything of it may still land, whatever the reader has been told."""
        is_over = self.state.is_final or self.num_landed == len(self.local_block_ids)
        return not is_over


def _bytes_of(blocks: torch.Tensor) -> torch.Tensor:
    """uint8 [num_blocks, block_bytes], of the same memory."""
    return blocks.view(len(blocks), -1).view(torch.uint8)


class LoopbackTransport:
    """A Transport; see there."""

    def __init__(
        self,
        pool: LocalPool,
        name: str,
        *,
        network: LoopbackNetwork = PROCESS_NETWORK,
        faults: LoopbackFaults | None = None,
    ) -> None:
        self.pool = pool
        self.network = network
        self.faults = faults or LoopbackFaults()
        self.generations_read = torch.zeros(pool.num_blocks * pool.max_parts, dtype=torch.int64)
        self._name = name
        self._peers: dict[str, tuple[KvPeer, Resharding]] = {}
        self._reads: list[LoopbackRead] = []

    @property
    def in_use(self) -> str:
        """One process has one link."""
        return TRANSPORT

    def describe(self) -> KvPeer:
        """Publishes the pool."""
        self.network.publish(self._name, self.pool)
        return self.pool.describe(TRANSPORT, self._name, b"")

    def start_reading(self) -> None:
        """Nothing is needed."""

    def connect(self, incarnation: str, peer: KvPeer) -> Resharding:
        """Checks the pools; whether the peer answers is seen at the first read."""
        fit = self.pool.check_peer(peer, TRANSPORT)
        self._peers[incarnation] = (peer, fit)
        return fit

    def disconnect(self, incarnation: str) -> None:
        """Forgets the peer."""
        self._peers.pop(incarnation, None)

    def abort(self, incarnation: str) -> None:
        """Fails the reads from every peer."""
        for read in self._reads:
            read.fail(f"the read was stopped, as {incarnation} had to be cut off")
        self._reads.clear()

    def read_blocks(
        self, incarnation: str, remote_block_ids: Sequence[int], local_block_ids: Sequence[int]
    ) -> Read:
        """Copies at later polls."""
        peer, fit = self._peer(incarnation)
        check_block_ids(
            remote_block_ids,
            local_block_ids,
            num_remote=peer.num_blocks * fit.source_parts,
            num_local=self.pool.num_blocks * fit.target_parts,
        )
        parts, local = fit.by_rank(remote_block_ids), list(local_block_ids)
        return post_all(
            [partial(self._post, incarnation, rank, list(own), local) for rank, own in parts]
        )

    def read_generations(
        self, incarnation: str, remote_block_ids: Sequence[int], rows: Sequence[int]
    ) -> LoopbackRead:
        """Copies at later polls; of rank 0."""
        peer, _ = self._peer(incarnation)
        num_rows = len(self.generations_read)
        check_block_ids(remote_block_ids, rows, num_remote=peer.num_blocks, num_local=num_rows)
        return self._post(incarnation, 0, list(remote_block_ids), list(rows), of_generations=True)

    def go_on(self) -> None:
        """Every peer's link carries what is at its head, first posted, first landed."""
        served: set[str] = set()
        for read in self._reads:
            if read.source_name not in served and read.is_under_way:
                read.land()
                if read.is_under_way:
                    served.add(read.source_name)
        self._reads = [read for read in self._reads if not read.state.is_final]

    def close(self) -> None:
        """Withdraws the pool."""
        self.network.withdraw(self._name)
        self.abort("this process")
        self._peers.clear()

    def _post(
        self,
        incarnation: str,
        rank: int,
        remote: list[int],
        local: list[int],
        *,
        of_generations: bool = False,
    ) -> LoopbackRead:
        peer, fit = self._peer(incarnation)
        name = peer.ranks[rank].agent_name
        if self.faults.refuses(name):
            raise TransferFailed(f"{incarnation} cannot be read: connection refused on purpose")
        read = LoopbackRead(
            self, name, remote, local, of_generations=of_generations, fit=fit, rank=rank
        )
        self._reads.append(read)
        return read

    def _peer(self, incarnation: str) -> tuple[KvPeer, Resharding]:
        if incarnation not in self._peers:
            raise TransferFailed(f"no connection to {incarnation}; connect first")
        return self._peers[incarnation]
