"""One connected worker: its ranks that are read, and rank 0 for the generations.

Where its ranks share blocks, each sequence is read from one of many: a rank is connected when it is
first read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cluster.errors import TransferFailed
from cluster.kv_peer import KvPeer
from kvtransfer.joint_read import post_all
from kvtransfer.nixl_peer import LocalEnd, NixlPeer, NixlRead
from kvtransfer.resharding import Resharding
from kvtransfer.transfer_agent import TransferAgent
from kvtransfer.transport import Read

_GENERATIONS_RANK = 0


class NixlSource:
    """Made at connect, closed at disconnect; used by the reading thread only."""

    def __init__(
        self,
        agent: TransferAgent,
        incarnation: str,
        source: tuple[KvPeer, Resharding],
        local: LocalEnd,
    ) -> None:
        """Raises TransferFailed when one of the ranks cannot be connected."""
        self._agent, self._incarnation, self._local = agent, incarnation, local
        self.peer, self.fit = source
        self._ranks: dict[int, NixlPeer] = {}
        try:
            for index in sorted({_GENERATIONS_RANK, *self._ranks_of_all()}):
                self._connected(index)
        except TransferFailed:
            self.close()
            raise

    def wire_up(self, row: int) -> None:
        """See NixlPeer."""
        self._ranks[_GENERATIONS_RANK].wire_up(row)

    def read_blocks(self, remote: Sequence[int], local: Sequence[int]) -> Read:
        """From every rank that has a part of them. Raises TransferFailed for one that is first read
        and cannot be connected."""
        ranks = [(self._connected(index), own) for index, own in self.fit.by_rank(remote)]
        return post_all([partial(rank.read_blocks, own, local) for rank, own in ranks])

    def read_generations(self, remote: Sequence[int], rows: Sequence[int]) -> NixlRead:
        """There is one generation for all ranks' parts of a block."""
        return self._ranks[_GENERATIONS_RANK].read_generations(remote, rows)

    def may_be_replaced(self) -> bool:
        """True when a read is broken and no block is in flight: a new connection may do better.

        Of blocks, that is after the agent has ended; the first read has a row of its own.
        """
        ranks = self._ranks.values()
        return not any(rank.has_reads() for rank in ranks) and any(rank.is_broken for rank in ranks)

    def fail_reads(self, error: str) -> None:
        """Before the agent is closed."""
        for rank in self._ranks.values():
            rank.fail_reads(error)

    def close(self) -> None:
        """Releases what was prepared and forgets the peer."""
        for rank in self._ranks.values():
            rank.close()
        self._ranks.clear()

    def _ranks_of_all(self) -> tuple[int, ...]:
        """Those from which every sequence is read."""
        return () if self.fit.homes is not None else self.fit.ranks

    def _connected(self, index: int) -> NixlPeer:
        if index not in self._ranks:
            source = self.peer, self.fit, index
            self._ranks[index] = NixlPeer(self._agent, self._incarnation, source, self._local)
        return self._ranks[index]
