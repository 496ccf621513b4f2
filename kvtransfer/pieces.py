"""The runs of a resharding as rows of [address, bytes, device id], as a library takes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cluster.kv_peer import KvRank
from kvtransfer.local_pool import LocalPool
from kvtransfer.resharding import Resharding

PieceRows = NDArray[np.uint64]


class Pieces:
    """Of one rank that is read. `there` and `here` of as many granules are parallel."""

    def __init__(self, fit: Resharding, rank: int) -> None:
        self._fit = fit
        runs = fit.of_rank(rank)
        self._source = np.array([run.source for run in runs], dtype=np.uint64)
        self._target = np.array([run.target for run in runs], dtype=np.uint64)
        self._num_bytes = np.array([run.num_bytes for run in runs], dtype=np.uint64)
        self._step = np.array([run.step for run in runs], dtype=np.uint64)

    def are_whole_blocks(self, rank: KvRank, pool: LocalPool) -> bool:
        """True when they are all of a block, on both sides."""
        return rank.block_bytes == pool.block_bytes and self._num_bytes.tolist() == [
            pool.block_bytes
        ]

    def there(self, rank: KvRank, granules: Sequence[int]) -> PieceRows:
        """In that rank's pool."""
        blocks, parts = _divided(granules, self._fit.source_parts)
        starts = np.uint64(rank.pool_address) + blocks * np.uint64(rank.block_bytes)
        return self._rows(starts + self._source + parts * self._step, rank.device_id)

    def here(self, pool: LocalPool, granules: Sequence[int]) -> PieceRows:
        """In the local pool."""
        blocks, parts = _divided(granules, self._fit.target_parts)
        starts = np.uint64(pool.blocks.data_ptr()) + blocks * np.uint64(pool.block_bytes)
        return self._rows(starts + self._target + parts * self._step, pool.device_id)

    def _rows(self, starts: PieceRows, device_id: int) -> PieceRows:
        """`starts` is [num_granules, num_runs]."""
        rows = np.empty((*starts.shape, 3), dtype=np.uint64)
        rows[..., 0], rows[..., 1], rows[..., 2] = starts, self._num_bytes, device_id
        return rows.reshape(-1, 3)


def _divided(granules: Sequence[int], parts: int) -> tuple[PieceRows, PieceRows]:
    """(blocks, parts), each [num_granules, 1]."""
    column = np.asarray(granules, dtype=np.uint64)[:, None]
    return column // np.uint64(parts), column % np.uint64(parts)
