"""The export of a pool that lies at several ranks: one peer, and digests of all heads.

    start      each rank describes its part       -> the conductor makes one KvPeer of them
    announce   conductor tells the block ids      -> every rank digests its heads -> all_gather

Where ranks share blocks, their home has all heads, and the others nothing to say of them. Of layers
that the first rank has whole, the digests are its own, behind those of the others.

Digests are gathered by the ranks' collective, between two steps: each rank is at the same place in
the order of plans, and none waits for a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import torch

from cluster.kv_peer import KvPeer, KvRank
from cluster.logs import get_logger
from cluster.models.head_share import HeadShare
from kvtransfer.local_pool import LocalPool
from kvtransfer.transport import PoolDescription
from kvtransfer.verification import Digest, digest_parts
from ranks.launch import CONDUCTOR
from ranks.line import Gather, RankLine

_log = get_logger("worker.exporter")


class DigestBlocks(msgspec.Struct, frozen=True):
    """What the conductor tells the others: digest these, with me."""

    block_ids: list[int]
    parts: int
    """Of a block, each with digests of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPool:
    """One rank's part of a pool, and the way to the others'."""

    pool: LocalPool
    shares: Sequence[HeadShare]
    """Of all ranks, in order."""
    gather: Gather
    digest: Digest

    def digests(self, block_ids: Sequence[int], parts: int) -> torch.Tensor:
        """int64 [num_ids, planes, heads of the model, parts], the same at every rank; each calls it
        with the same numbers: of blocks of one home.

        Raises RuntimeError where a rank could not digest its part, RankLost where one has gone.
        """
        planes, held = self.pool.form.num_planes, self._held(block_ids)
        num_heads, whole_planes = self.shares[0].num_heads, self.pool.num_planes - planes
        widths = [planes * len(heads) * parts + 1 for heads in held]
        widths[CONDUCTOR] += whole_planes * num_heads * parts
        rows = self._own(block_ids, parts, widths[self.pool.heads.rank])
        every = torch.split(self.gather(rows, widths), widths, dim=1)
        if not all(bool(found[:, -1].all()) for found in every):
            raise RuntimeError("a rank could not digest its part of the blocks; its log says why")
        whole = rows.new_empty((len(block_ids), planes + whole_planes, num_heads, parts))
        for heads, found in zip(held, every, strict=True):
            part = found[:, : planes * len(heads) * parts]
            part = part.reshape(len(block_ids), planes, len(heads), parts)
            whole[:, :planes, heads.start : heads.stop] = part
        if whole_planes:
            part = every[CONDUCTOR][:, planes * len(held[CONDUCTOR]) * parts : -1]
            whole[:, planes:] = part.reshape(len(block_ids), whole_planes, num_heads, parts)
        return whole

    def _held(self, block_ids: Sequence[int]) -> list[range]:
        """The heads of these blocks that each rank has."""
        homes = self.pool.homes
        if not homes.are_several:
            return [share.heads for share in self.shares]
        asked = {homes.home_of(block) for block in block_ids}
        if len(asked) > 1:
            raise RuntimeError(f"blocks of ranks {sorted(asked)} are announced as one sequence's")
        return [share.heads if share.rank in asked else range(0) for share in self.shares]

    def _own(self, block_ids: Sequence[int], parts: int, width: int) -> torch.Tensor:
        """[num_ids, width]: what failed is told in the last column, for the others wait."""
        blocks = self.pool.blocks
        rows = torch.zeros((len(block_ids), width), dtype=torch.int64, device=blocks.device)
        if width == 1:  # they are another rank's
            return rows.fill_(1)
        try:
            own_ids = [self.pool.homes.local(block) for block in block_ids]
            found = digest_parts(self.digest, blocks, own_ids, parts)
            rows[:, :-1], rows[:, -1] = found.reshape(len(block_ids), -1)[:, : width - 1], 1
        except (RuntimeError, ValueError, IndexError):
            _log.exception("a rank's part of blocks could not be checksummed")
        return rows


class ExportGroup:
    """The conductor's end."""

    def __init__(self, shared: SharedPool, line: RankLine) -> None:
        """`line`: to the RankExporters of the other ranks."""
        self._shared, self._line = shared, line
        said = line.greetings
        self._others = [msgspec.msgpack.decode(said[rank], type=KvRank) for rank in sorted(said)]

    def whole(self, own: KvPeer) -> KvPeer:
        """The pool of all ranks; generations are the conductor's."""
        return replace(own, ranks=(*own.ranks, *self._others))

    def digests(self, block_ids: Sequence[int], parts: int) -> torch.Tensor:
        """See SharedPool."""
        self._line.tell(msgspec.msgpack.encode(DigestBlocks(list(block_ids), parts)))
        return self._shared.digests(block_ids, parts)


class RankExporter:
    """Another rank's end: a RankExtension, see there. Owns its transport."""

    busy = False
    """Nothing is ever in flight here."""

    def __init__(self, shared: SharedPool, transport: PoolDescription) -> None:
        """Raises ConfigError when the transport cannot export this pool."""
        self._shared, self._transport = shared, transport
        (rank,) = transport.describe().ranks
        self.greeting = msgspec.msgpack.encode(rank)
        """For the conductor: where this rank's part can be read."""

    def handle(self, body: bytes) -> None:
        """Digests with the others. Raises RankLost."""
        wanted = msgspec.msgpack.decode(body, type=DigestBlocks)
        try:
            self._shared.digests(wanted.block_ids, wanted.parts)
        except RuntimeError:
            _log.warning("blocks are announced without digests; their reader computes them itself")

    def poll(self) -> list[bytes]:
        """Nothing to tell."""
        return []

    def close(self) -> None:
        """Ends the transport."""
        self._transport.close()
