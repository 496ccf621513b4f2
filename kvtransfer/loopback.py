"""The transport within one process: a copy between two registered pools. For tests and for tools.

Reads finish when they are polled, so a test decides in which order things happen. `faults` is the
seam: what it answers is what the "network" does.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from cluster.errors import TransferFailed
from cluster.kv_peer import KvPeer
from kvtransfer.local_pool import LocalPool, boot_id, check_block_ids
from kvtransfer.transport import ReadState

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
    """What goes wrong. The defaults are: nothing. Called on the reading thread."""

    def holds(self) -> bool:
        """True keeps every read PENDING for this poll."""
        return False

    def fails(self) -> bool:
        """True makes the read FAIL instead of finishing."""
        return False

    def after_blocks(
        self, source: LocalPool, target: LocalPool, local_block_ids: list[int]
    ) -> None:
        """Bytes have arrived: a place to flip one, or to give the slot at the source away."""


@dataclass(slots=True)
class LoopbackRead:
    """Copies when polled."""

    transport: LoopbackTransport
    source_name: str
    remote_block_ids: list[int]
    local_block_ids: list[int]
    of_generations: bool
    error: str = ""
    _state: ReadState = field(default=ReadState.PENDING)

    def poll(self) -> ReadState:
        """PENDING while the faults hold it."""
        if self._state is ReadState.PENDING and not self.transport.faults.holds():
            self._finish()
        return self._state

    def fail(self, error: str) -> None:
        """The end, unless there was one before."""
        if self._state is ReadState.PENDING:
            self._state, self.error = ReadState.FAILED, error

    def _finish(self) -> None:
        source = self.transport.network.find(self.source_name)
        if source is None:
            self.fail(f"loopback peer {self.source_name!r} is gone")
        elif self.transport.faults.fails():
            self.fail("loopback read failed on purpose")
        else:
            self._copy(source)
            self._state = ReadState.DONE

    def _copy(self, source: LocalPool) -> None:
        target = self.transport.pool
        if self.of_generations:
            read = source.generations[self.remote_block_ids]
            self.transport.generations_read[self.local_block_ids] = read
            return
        target.blocks[self.local_block_ids] = source.blocks[self.remote_block_ids]
        self.transport.faults.after_blocks(source, target, self.local_block_ids)


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
        self.generations_read = torch.zeros(pool.num_blocks, dtype=torch.int64)
        self._name = name
        self._peers: dict[str, KvPeer] = {}
        self._reads: list[LoopbackRead] = []

    @property
    def in_use(self) -> str:
        """One process has one link."""
        return TRANSPORT

    def describe(self) -> KvPeer:
        """Publishes the pool."""
        self.network.publish(self._name, self.pool)
        return KvPeer(
            agent_name=self._name,
            agent_metadata=b"",
            transport=TRANSPORT,
            pool_address=self.pool.blocks.data_ptr(),
            block_bytes=self.pool.block_bytes,
            num_blocks=self.pool.num_blocks,
            generations_address=self.pool.generations.data_ptr(),
            device_id=self.pool.device_id,
            memory=self.pool.memory,
            host=boot_id(),
        )

    def start_reading(self) -> None:
        """Nothing is needed."""

    def connect(self, incarnation: str, peer: KvPeer) -> None:
        """Checks the pools; nothing else is needed."""
        self.pool.check_peer(peer, TRANSPORT)
        self._peers[incarnation] = peer

    def disconnect(self, incarnation: str) -> None:
        """Forgets the peer."""
        self._peers.pop(incarnation, None)

    def abort(self, incarnation: str) -> None:
        """Fails the reads from this peer."""
        peer = self._peers.pop(incarnation, None)
        for read in self._reads:
            if peer is not None and read.source_name == peer.agent_name:
                read.fail(f"the read from {incarnation} was aborted")

    def read_blocks(
        self, incarnation: str, remote_block_ids: Sequence[int], local_block_ids: Sequence[int]
    ) -> LoopbackRead:
        """Copies at a later poll."""
        return self._post(incarnation, remote_block_ids, local_block_ids, of_generations=False)

    def read_generations(
        self, incarnation: str, remote_block_ids: Sequence[int], local_block_ids: Sequence[int]
    ) -> LoopbackRead:
        """Copies at a later poll."""
        return self._post(incarnation, remote_block_ids, local_block_ids, of_generations=True)

    def close(self) -> None:
        """Withdraws the pool."""
        self.network.withdraw(self._name)
        for incarnation in list(self._peers):
            self.abort(incarnation)

    def _post(
        self,
        incarnation: str,
        remote: Sequence[int],
        local: Sequence[int],
        *,
        of_generations: bool,
    ) -> LoopbackRead:
        peer = self._peers.get(incarnation)
        if peer is None:
            raise TransferFailed(f"no connection to {incarnation}; connect first")
        check_block_ids(remote, local, num_remote=peer.num_blocks, num_local=self.pool.num_blocks)
        read = LoopbackRead(
            self, peer.agent_name, list(remote), list(local), of_generations=of_generations
        )
        self._reads = [old for old in self._reads if old._state is ReadState.PENDING]
        self._reads.append(read)
        return read
