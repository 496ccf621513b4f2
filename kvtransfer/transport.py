"""What a transport does: it describes the local pool, and reads blocks of other pools into it.

    describe -> KvPeer, which travels      connect(incarnation, peer) -> disconnect(incarnation)
    read_blocks ----> PENDING --> DONE     the bytes are in the local blocks, of all ranks
                         |------> FAILED   nothing will be written any more
                         '------> BROKEN --abort--> FAILED   some of it may still be written

A read is one-sided: the peer's program takes no part. Nobody ever writes into another's pool.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

import torch

from cluster.kv_peer import KvPeer
from kvtransfer.resharding import Resharding


class ReadState(enum.Enum):
    """What a poll finds. DONE and FAILED are final: no byte of this read lands afterwards.

    BROKEN: the read has failed, but parts of it may still be under way (a library that gives up at
    the first error of many). Its local blocks are not free before `abort`.
    """

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"
    BROKEN = "broken"

    @property
    def is_final(self) -> bool:
        """True when the local blocks are the caller's again."""
        return self in (ReadState.DONE, ReadState.FAILED)


class Read(Protocol):
    """One read in flight, owned by whoever posted it."""

    @property
    def error(self) -> str:
        """Why it is FAILED or BROKEN; empty otherwise."""

    def poll(self) -> ReadState:
        """Never waits. From the posting thread; call it until the answer is final."""


class PoolDescription(Protocol):
    """The exporting side."""

    def describe(self) -> KvPeer:
        """Where the local pool can be read, from now until `close`. From any one thread, once or
        more; raises ConfigError when this transport cannot export."""

    def close(self) -> None:
        """Ends every read and every export. Idempotent; from the reading thread, if there is one.
        Afterwards the pool's memory is the caller's alone."""


class BlockReads(Protocol):
    """The reading side. Every call comes from one thread, the same one."""

    def start_reading(self) -> None:
        """Makes what any connection needs, ahead of the first. Raises TransferFailed if it fails;
        `connect` tries again."""

    def connect(self, incarnation: str, peer: KvPeer) -> Resharding:
        """Makes the peer's pool readable under this name; returns how its blocks become ours.
        Wiring up goes on in the background.

        Raises PairingMismatch when the pools do not fit, TransferFailed when the library refuses.
        """

    def disconnect(self, incarnation: str) -> None:
        """Forgets the peer. No read from it may be in flight; an unknown name is ignored."""

    def read_blocks(
        self, incarnation: str, remote_block_ids: Sequence[int], local_block_ids: Sequence[int]
    ) -> Read:
        """Posts a read of remote blocks into local ones, pairwise, from all ranks that have heads
        of the local pool.

        Of a peer with blocks of another size the ids are granules': block id * parts + part, by
        the parts of a block there, and of one here. The local blocks belong to the read until it is
        final. Raises TransferFailed when nothing was posted: unknown incarnation, an id out of
        range, a peer that cannot be reached. When only a part could be posted, the read that is
        returned is BROKEN.
        """

    def read_generations(
        self, incarnation: str, remote_block_ids: Sequence[int], rows: Sequence[int]
    ) -> Read:
        """Posts a read of the peer's generations, by its blocks' ids, into rows of
        `generations_read`.

        Post it after the bytes are DONE: two reads in flight are not ordered. Raises as above.
        """


class Transport(PoolDescription, BlockReads, Protocol):
    """Both sides over one local pool."""

    @property
    def in_use(self) -> str:
        """The link that reads really take, in words; empty before the first connection."""

    @property
    def generations_read(self) -> torch.Tensor:
        """int64 [num_local_blocks * LocalPool.max_parts, or more]: what `read_generations` brought.
        The reader chooses the rows; a block's own are one per part, all blocks apart."""

    def abort(self, incarnation: str) -> None:
        """Forces an end to all reads from this peer; on return none can land.

        For a peer that hangs, or whose read is BROKEN. Reads of other peers may FAIL as well, and
        may be posted again. Everybody stays connected, as far as `connect` goes. An exception means
        that bytes may still land: the process must end.
        """
