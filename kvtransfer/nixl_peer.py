"""One connected peer: its memory as descriptor lists, and the reads that are under way from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cluster.errors import TransferFailed
from cluster.kv_peer import KvPeer
from kvtransfer.nixl_library import nixl_errors
from kvtransfer.transfer_agent import TransferAgent
from kvtransfer.transport import ReadState

GENERATION_BYTES = 8


class NixlRead:
    """A read in flight. Its handle is released by the poll that finds the end."""

    def __init__(self, agent: TransferAgent, handle: int, done: bool, peer: str) -> None:
        self.error = ""
        self._agent = agent
        self._handle = handle
        self._peer = peer
        self._state = ReadState.PENDING
        if done:
            self._end(ReadState.DONE)

    def poll(self) -> ReadState:
        """Asks the library; see Read."""
        if self._state is ReadState.PENDING:
            try:
                if self._agent.is_done(self._handle):
                    self._end(ReadState.DONE)
            except nixl_errors() as error:
                self.error = f"the read from {self._peer} failed: {error}"
                self._end(ReadState.FAILED)
        return self._state

    def fail(self, error: str) -> None:
        """The agent is about to be closed: the read ends now."""
        if self._state is ReadState.PENDING:
            self.error = error
            self._end(ReadState.FAILED)

    def _end(self, state: ReadState) -> None:
        self._state = state
        self._agent.release(self._handle)


class NixlPeer:
    """Made at connect, closed at disconnect; used by the reading thread only."""

    def __init__(
        self, agent: TransferAgent, incarnation: str, peer: KvPeer, local_rows: tuple[int, int]
    ) -> None:
        """`local_rows` are the descriptor lists of the local blocks and generations.

        Raises TransferFailed when the connection cannot be made.
        """
        self.peer = peer
        self.is_broken = False
        self._agent = agent
        self._incarnation = incarnation
        self._local_blocks, self._local_generations = local_rows
        self._reads: list[NixlRead] = []
        agent.add_peer(peer.agent_name, peer.agent_metadata)
        place = (peer.memory, peer.device_id)
        try:
            self._blocks = agent.prepare(
                peer.agent_name, peer.pool_address, peer.block_bytes, peer.num_blocks, place
            )
            self._generations = agent.prepare(
                peer.agent_name,
                peer.generations_address,
                GENERATION_BYTES,
                peer.num_blocks,
                ("DRAM", 0),
            )
        except TransferFailed:
            agent.remove_peer(peer.agent_name)
            raise

    def read_blocks(self, remote: Sequence[int], local: Sequence[int]) -> NixlRead:
        """Blocks into blocks."""
        return self._post(self._blocks, remote, self._local_blocks, local)

    def read_generations(self, remote: Sequence[int], local: Sequence[int]) -> NixlRead:
        """Generations into the local rows for them."""
        return self._post(self._generations, remote, self._local_generations, local)

    def may_be_replaced(self) -> bool:
        """True when a read has failed and none is in flight: a new connection may do better."""
        self._settle()
        return self.is_broken and not self._reads

    def fail_reads(self, error: str) -> None:
        """Before the agent is closed."""
        for read in self._reads:
            read.fail(error)
        self._reads.clear()

    def close(self) -> None:
        """Releases what was prepared and forgets the peer.

        A first read that nobody waited for may still be under way: its place is its own.
        """
        self.fail_reads("disconnected")
        self._agent.release_list(self._blocks)
        self._agent.release_list(self._generations)
        self._agent.remove_peer(self.peer.agent_name)

    def _post(
        self,
        remote_list: int,
        remote: Sequence[int],
        local_list: int,
        local: Sequence[int],
    ) -> NixlRead:
        remote_rows = np.asarray(remote, dtype=np.int32)
        local_rows = np.asarray(local, dtype=np.int32)
        try:
            handle, done = self._agent.post_read(local_list, local_rows, remote_list, remote_rows)
        except nixl_errors() as error:
            self.is_broken = True
            raise TransferFailed(f"{self._incarnation} cannot be read: {error}") from error
        read = NixlRead(self._agent, handle, done, self._incarnation)
        self._settle()
        self._reads.append(read)
        return read

    def _settle(self) -> None:
        """Drops the reads that are over, and remembers whether one of them failed."""
        states = [read.poll() for read in self._reads]
        self.is_broken = self.is_broken or ReadState.FAILED in states
        self._reads = [read for read in self._reads if read.poll() is ReadState.PENDING]
