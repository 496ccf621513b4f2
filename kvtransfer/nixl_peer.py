"""One connected peer: its memory as descriptor lists, and the reads that are under way from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cluster.errors import TransferFailed
from cluster.kv_peer import KvPeer, KvRank
from kvtransfer.nixl_library import nixl_errors
from kvtransfer.transfer_agent import PostedRead, TransferAgent
from kvtransfer.transport import ReadState

GENERATION_BYTES = 8


class NixlRead:
    """A read in flight. Its handle is released by the poll that finds the end.

    The library answers with the first error of many descriptors, and cancelling the others "may not
    be enough" (its own words, ucx_backend.cpp): a read with an error is BROKEN until the agent has
    ended. The answer is kept: asked again, the library may say that the rest succeeded.
    """

    def __init__(self, agent: TransferAgent, posted: PostedRead, peer: str) -> None:
        self.error = ""
        self._agent = agent
        self._handle = posted.handle
        self._peer = peer
        self._state = ReadState.PENDING
        if posted.error:
            self._break(posted.error)
        elif posted.is_done:
            self._end(ReadState.DONE)

    def poll(self) -> ReadState:
        """Asks the library; see Read."""
        if self._state is ReadState.PENDING:
            try:
                if self._agent.is_done(self._handle):
                    self._end(ReadState.DONE)
            except nixl_errors() as error:
                self._break(str(error))
        return self._state

    def fail(self, error: str) -> None:
        """The agent is about to be closed: the read ends now."""
        if not self._state.is_final:
            self.error = self.error or error
            self._end(ReadState.FAILED)

    def _break(self, error: str) -> None:
        self.error = f"the read from {self._peer} failed: {error}"
        self._state = ReadState.BROKEN

    def _end(self, state: ReadState) -> None:
        self._state = state
        self._agent.release(self._handle)


class NixlPeer:
    """Made at connect, closed at disconnect; used by the reading thread only."""

    def __init__(
        self,
        agent: TransferAgent,
        incarnation: str,
        pool: tuple[KvPeer, KvRank],
        local_rows: tuple[int, int],
    ) -> None:
        """`local_rows` are the descriptor lists of the local blocks and generations.

        Raises TransferFailed when the connection cannot be made.
        """
        peer, rank = pool
        self.num_blocks = peer.num_blocks
        self._name = rank.agent_name
        self._is_broken = False
        self._first: NixlRead | None = None
        self._agent = agent
        self._incarnation = incarnation
        self._local_blocks, self._local_generations = local_rows
        self._reads: list[NixlRead] = []
        agent.add_peer(rank.agent_name, rank.agent_metadata)
        place = (rank.memory, rank.device_id)
        try:
            self._blocks = agent.prepare(
                rank.agent_name, rank.pool_address, rank.block_bytes, peer.num_blocks, place
            )
            self._generations = agent.prepare(
                rank.agent_name,
                peer.generations_address,
                GENERATION_BYTES,
                peer.num_blocks,
                ("DRAM", 0),
            )
        except TransferFailed:
            agent.remove_peer(rank.agent_name)
            raise

    def wire_up(self, place: int) -> None:
        """A first read of one generation, into a place of its own; nobody waits for it."""
        self._first = self._start(self._generations, [0], self._local_generations, [place])

    def read_blocks(self, remote: Sequence[int], local: Sequence[int]) -> NixlRead:
        """Blocks into blocks."""
        return self._post(self._blocks, remote, self._local_blocks, local)

    def read_generations(self, remote: Sequence[int], local: Sequence[int]) -> NixlRead:
        """Generations into the local rows for them."""
        return self._post(self._generations, remote, self._local_generations, local)

    def may_be_replaced(self) -> bool:
        """True when a read is broken and no block is in flight: a new connection may do better.

        Of blocks, that is after the agent has ended; the first read has a place of its own.
        """
        self._settle()
        first_broke = self._first is not None and self._first.poll() is ReadState.BROKEN
        return (self._is_broken or first_broke) and not self._reads

    def fail_reads(self, error: str) -> None:
        """Before the agent is closed."""
        for read in (*self._reads, *([self._first] if self._first else [])):
            read.fail(error)
        self._reads.clear()

    def close(self) -> None:
        """Releases what was prepared and forgets the peer.

        A first read that nobody waited for may still be under way: its place is its own.
        """
        self.fail_reads("disconnected")
        self._agent.release_list(self._blocks)
        self._agent.release_list(self._generations)
        self._agent.remove_peer(self._name)

    def _post(
        self, remote_list: int, remote: Sequence[int], local_list: int, local: Sequence[int]
    ) -> NixlRead:
        read = self._start(remote_list, remote, local_list, local)
        self._settle()
        self._reads.append(read)
        return read

    def _start(
        self,
        remote_list: int,
        remote: Sequence[int],
        local_list: int,
        local: Sequence[int],
    ) -> NixlRead:
        remote_rows = np.asarray(remote, dtype=np.int32)
        local_rows = np.asarray(local, dtype=np.int32)
        try:
            posted = self._agent.post_read(local_list, local_rows, remote_list, remote_rows)
        except nixl_errors() as error:
            self._is_broken = True
            raise TransferFailed(f"{self._incarnation} cannot be read: {error}") from error
        return NixlRead(self._agent, posted, self._incarnation)

    def _settle(self) -> None:
        """Drops the reads that are over. Broken ones are not: they end with the agent."""
        self._reads = [read for read in self._reads if not read.poll().is_final]
