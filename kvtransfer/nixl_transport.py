"""NIXL over UCX: RDMA, NVLink, shared memory or TCP, whatever the two machines have.

    export agent   made by describe, lives until close: peers hold its name
    reading agent  made by connect; abort replaces it by a new one under a new name

They are two, because ending an agent is the only way to stop a read that hangs (transfer_agent.py),
and peers that read from us must not notice.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from cluster.errors import TransferFailed
from cluster.kv_peer import KvPeer
from kvtransfer.local_pool import LocalPool, check_block_ids
from kvtransfer.nixl_library import check_allocator, nixl_bindings, ucx_log
from kvtransfer.nixl_peer import GENERATION_BYTES, LocalEnd, NixlRead
from kvtransfer.nixl_source import NixlSource
from kvtransfer.resharding import Resharding
from kvtransfer.transfer_agent import TransferAgent
from kvtransfer.transport import Read

TRANSPORT = "nixl"


class NixlTransport:
    """A Transport; see there. `name` is unique per process: nobody may have used it before."""

    def __init__(self, pool: LocalPool, name: str) -> None:
        """Raises ConfigError when NIXL is not installed, or the pool's memory cannot be shared."""
        check_allocator(pool.memory, os.environ)
        nixl_bindings()
        self.pool = pool
        num_rows = pool.num_blocks * pool.max_parts + 1  # the last one for first reads
        self.generations_read = torch.zeros(num_rows, dtype=torch.int64)
        self._name = name
        self._export: TransferAgent | None = None
        self._reader: TransferAgent | None = None
        self._local: LocalEnd | None = None
        self._num_readers = 0
        self._wanted: dict[str, tuple[KvPeer, Resharding]] = {}
        self._peers: dict[str, NixlSource] = {}
        self._link = ""

    @property
    def in_use(self) -> str:
        """For example "nixl/UCX shared memory (cma)": what UCX says it chose for a block.

        Known after the first read. When the user has taken UCX's log (UCX_LOG_FILE), it cannot be
        known, and the words say what was allowed instead.
        """
        if not self._link and self._peers:
            self._link = self._find_link()
        return self._link

    def describe(self) -> KvPeer:
        """Registers the pool and its generations at the first call."""
        if self._export is None:
            self._export = self._make_agent(self._name)
            generations = self.pool.generations
            self._export.register(generations.data_ptr(), generations.nbytes, "DRAM", 0)
        return self.pool.describe(TRANSPORT, self._name, self._export.metadata())

    def start_reading(self) -> None:
        """Loads UCX and registers the pool: half a second that no request should wait for."""
        self._reading_agent()

    def connect(self, incarnation: str, peer: KvPeer) -> Resharding:
        """Connects, and starts a first read of one generation, which wires the link up.

        A working connection to the same pool is kept: UCX closes a connection to a live peer only
        when one of the two agents ends, so each new one would cost both sides a socket.
        """
        wanted = peer, self.pool.check_peer(peer, TRANSPORT)
        if self._wanted.get(incarnation) == wanted:
            return wanted[1]
        self.disconnect(incarnation)
        self._wanted[incarnation] = wanted
        try:
            self._connected(incarnation).wire_up(len(self.generations_read) - 1)
        except TransferFailed:
            self.disconnect(incarnation)
            raise
        return wanted[1]

    def disconnect(self, incarnation: str) -> None:
        """Removes the remote agent and its descriptor lists."""
        self._wanted.pop(incarnation, None)
        peer = self._peers.pop(incarnation, None)
        if peer is not None:
            peer.close()

    def read_blocks(
        self, incarnation: str, remote_block_ids: Sequence[int], local_block_ids: Sequence[int]
    ) -> Read:
        """One descriptor per block where blocks are alike; adjacent ones travel as one."""
        source = self._connected(incarnation)
        check_block_ids(
            remote_block_ids,
            local_block_ids,
            num_remote=source.peer.num_blocks * source.fit.source_parts,
            num_local=self.pool.num_blocks * source.fit.target_parts,
        )
        return source.read_blocks(remote_block_ids, local_block_ids)

    def read_generations(
        self, incarnation: str, remote_block_ids: Sequence[int], rows: Sequence[int]
    ) -> NixlRead:
        """Eight bytes per block, of rank 0."""
        source = self._connected(incarnation)
        check_block_ids(
            remote_block_ids,
            rows,
            num_remote=source.peer.num_blocks,
            num_local=len(self.generations_read) - 1,
        )
        return source.read_generations(remote_block_ids, rows)

    def abort(self, incarnation: str) -> None:
        """Ends the reading agent. Every peer is connected again at its next read.

        A peer that hung in the middle of a TCP read, and wakes up after this, may be ended by its
        own UCX: it finds the connection cut.
        """
        for name, peer in self._peers.items():
            peer.fail_reads(f"the read from {name} was stopped, as {incarnation} had to be cut off")
            peer.close()
        self._peers.clear()
        if self._reader is not None:
            self._reader.close()
        self._reader = None

    def close(self) -> None:
        """Ends both agents."""
        self._wanted.clear()
        self.abort("this process")
        if self._export is not None:
            self._export.close()
        self._export = None

    def _connected(self, incarnation: str) -> NixlSource:
        """The connection; a broken one is made anew, so that no error is for good."""
        peer = self._peers.get(incarnation)
        if peer is not None and peer.may_be_replaced():
            self._peers.pop(incarnation).close()
            peer = None
        return peer or self._make_peer(incarnation)

    def _make_peer(self, incarnation: str) -> NixlSource:
        wanted = self._wanted.get(incarnation)
        if wanted is None:
            raise TransferFailed(f"no connection to {incarnation}; connect first")
        agent, local = self._reading_agent()
        peer = NixlSource(agent, incarnation, wanted, local)
        self._peers[incarnation] = peer
        return peer

    def _reading_agent(self) -> tuple[TransferAgent, LocalEnd]:
        if self._reader is None or self._local is None:
            self._num_readers += 1
            agent = self._make_agent(
                f"{self._name}-reader-{self._num_readers}",
                has_progress_thread=self.pool.memory == "DRAM",
            )
            found = self.generations_read
            agent.register(found.data_ptr(), found.nbytes, "DRAM", 0)
            pool, place = self.pool, (self.pool.memory, self.pool.device_id)
            blocks = pool.blocks.data_ptr(), pool.block_bytes, pool.num_blocks
            rows = found.data_ptr(), GENERATION_BYTES, len(found)
            self._local = LocalEnd(
                pool=pool,
                blocks=agent.prepare(None, *blocks, place),
                generations=agent.prepare(None, *rows, ("DRAM", 0)),
            )
            self._reader = agent
        return self._reader, self._local

    def _make_agent(self, name: str, *, has_progress_thread: bool = True) -> TransferAgent:
        """Readers of a GPU's memory go without the thread, which the library starts without a CUDA
        context: now and then the process dies of it (nixl 2102). Whoever reads asks anyway."""
        blocks = self.pool.blocks
        if blocks.is_cuda:  # in a thread without a CUDA context UCX leaves NVLink out, silently
            torch.cuda.set_device(blocks.device)
        agent = TransferAgent(name, has_progress_thread=has_progress_thread)
        agent.register(blocks.data_ptr(), blocks.nbytes, self.pool.memory, self.pool.device_id)
        return agent

    def _find_link(self) -> str:
        log = ucx_log()
        if log is None:
            return f"nixl/UCX (one of {os.environ.get('UCX_TLS', 'all')})"
        sizes = [run.num_bytes for peer in self._peers.values() for run in peer.fit.runs]
        link = log.link(max(sizes), self.pool.memory)
        return f"nixl/UCX {link}" if link else ""
