"""One rank of a connected peer: its memory as descriptors, and the reads under way from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cluster.errors import TransferFailed
from cluster.kv_peer import KvPeer
from kvtransfer.local_pool import LocalPool
from kvtransfer.nixl_library import nixl_errors
from kvtransfer.pieces import Pieces
from kvtransfer.resharding import Resharding
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEnd:
    """Where reads of one agent go."""

    pool: LocalPool
    blocks: int
    """Descriptor list of the pool's blocks."""
    generations: int
    """Of the rows for generations."""


class NixlPeer:
    """One rank that is read. Whole blocks go by descriptors that are made once, and parts of blocks
    by those of each read: there would be too many of them."""

    def __init__(
        self,
        agent: TransferAgent,
        incarnation: str,
        source: tuple[KvPeer, Resharding, int],
        local: LocalEnd,
    ) -> None:
        """`source` is the worker, how its blocks become ours, and which of its ranks this is.

        Raises TransferFailed when the connection cannot be made.
        """
        self._peer, fit, index = source
        self._rank = self._peer.ranks[index]
        self._pieces = Pieces(fit, index)
        self._is_broken = False
        self._first: NixlRead | None = None
        self._agent = agent
        self._incarnation = incarnation
        self._local = local
        self._reads: list[NixlRead] = []
        agent.add_peer(self._rank.agent_name, self._rank.agent_metadata)
        self._lists: list[int] = []
        try:
            self._generations = self._prepare_generations() if index == 0 else 0
            is_whole = self._pieces.are_whole_blocks(self._rank, local.pool)
            self._blocks = self._prepare_blocks() if is_whole else None
        except TransferFailed:
            self.close()
            raise

    @property
    def is_broken(self) -> bool:
        """True when a new connection may do better."""
        first = self._first
        return self._is_broken or (first is not None and first.poll() is ReadState.BROKEN)

    def has_reads(self) -> bool:
        """True while any is in flight, but for the first one. A broken one ends with the agent."""
        self._reads = [read for read in self._reads if not read.poll().is_final]
        return bool(self._reads)

    def wire_up(self, row: int) -> None:
        """A first read of one generation, into a row of its own; nobody waits for it."""
        self._first = self._start(partial(self._post_generations, [0], [row]))

    def read_blocks(self, remote: Sequence[int], local: Sequence[int]) -> NixlRead:
        """What of these granules of this rank is ours."""
        post = self._post_pieces if self._blocks is None else self._post_blocks
        return self._keep(self._start(partial(post, remote, local)))

    def read_generations(self, remote: Sequence[int], rows: Sequence[int]) -> NixlRead:
        """Of rank 0: generations into the local rows for them."""
        return self._keep(self._start(partial(self._post_generations, remote, rows)))

    def fail_reads(self, error: str) -> None:
        """Before the agent is closed."""
        for read in (*self._reads, *([self._first] if self._first else [])):
            read.fail(error)
        self._reads.clear()

    def close(self) -> None:
        """Releases what was prepared and forgets the peer.

        A first read that nobody waited for may still be under way: its row is its own.
        """
        self.fail_reads("disconnected")
        for descriptors in self._lists:
            self._agent.release_list(descriptors)
        self._lists.clear()
        self._agent.remove_peer(self._rank.agent_name)

    def _prepare_blocks(self) -> int:
        rank = self._rank
        place = (rank.memory, rank.device_id)
        return self._prepare(rank.pool_address, rank.block_bytes, self._peer.blocks_each, place)

    def _prepare_generations(self) -> int:
        """Of all ranks' blocks."""
        rows = GENERATION_BYTES, self._peer.num_blocks
        return self._prepare(self._peer.generations_address, *rows, ("DRAM", 0))

    def _prepare(self, address: int, row_bytes: int, num_rows: int, place: tuple[str, int]) -> int:
        name = self._rank.agent_name
        self._lists.append(self._agent.prepare(name, address, row_bytes, num_rows, place))
        return self._lists[-1]

    def _post_blocks(self, remote: Sequence[int], local: Sequence[int]) -> PostedRead:
        assert self._blocks is not None
        return self._agent.post_read(self._local.blocks, _rows(local), self._blocks, _rows(remote))

    def _post_generations(self, remote: Sequence[int], rows: Sequence[int]) -> PostedRead:
        here, there = self._local.generations, self._generations
        return self._agent.post_read(here, _rows(rows), there, _rows(remote))

    def _post_pieces(self, remote: Sequence[int], local: Sequence[int]) -> PostedRead:
        rank, pool = self._rank, self._local.pool
        return self._agent.post_pieces(
            rank.agent_name,
            (self._pieces.here(pool, local), pool.memory),
            (self._pieces.there(rank, remote), rank.memory),
        )

    def _start(self, post: Callable[[], PostedRead]) -> NixlRead:
        try:
            posted = post()
        except nixl_errors() as error:
            self._is_broken = True
            raise TransferFailed(f"{self._incarnation} cannot be read: {error}") from error
        return NixlRead(self._agent, posted, self._incarnation)

    def _keep(self, read: NixlRead) -> NixlRead:
        self.has_reads()  # those that are over are dropped
        self._reads.append(read)
        return read


def _rows(numbers: Sequence[int]) -> NDArray[np.int32]:
    return np.asarray(numbers, dtype=np.int32)
