"""The granules of one job: of which parts of the peer's blocks ours are made.

A block of ours is a row of granules, which lie in one or several of the peer's blocks. Of the last
block of a prompt the peer may have only the first ones: behind them there is nothing to read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from cluster.errors import TransferFailed
from kvtransfer.read_job import ReadJob
from kvtransfer.resharding import Resharding


class JobGranules:
    """By positions of our blocks in the job; arrays are [num_blocks, target_parts]."""

    def __init__(self, job: ReadJob, fit: Resharding, num_slots: int) -> None:
        """`num_slots`: of the local pool. Raises TransferFailed for a job whose blocks are not
        those of its span."""
        parts = np.arange(fit.target_parts)
        index = (job.first_index + np.arange(job.num_blocks)[:, None]) * fit.target_parts + parts
        at = index // fit.source_parts - job.span.first_index
        self.is_there = (at >= 0) & (at < job.span.num_blocks)
        """False of granules that the peer does not have."""
        _check_covered(self.is_there, job)
        self._at = np.where(self.is_there, at, 0)
        self._part = index % fit.source_parts
        self._blocks = np.asarray(job.span.block_ids)[self._at]
        self._remote = self._blocks * fit.source_parts + self._part
        slots = np.asarray(job.local_block_ids)[:, None]
        self._local = slots * fit.target_parts + parts
        self._rows = parts * num_slots + slots
        self._generations = job.span.generations

    def slots(self, positions: Sequence[int]) -> tuple[list[int], list[int]]:
        """(granules in the peer's pool, in the local one) to be read."""
        return self._pairs(self._remote, self._local, positions)

    def generations(self, positions: Sequence[int]) -> tuple[list[int], list[int]]:
        """(the peer's blocks, rows of `generations_read`) to be read."""
        return self._pairs(self._blocks, self._rows, positions)

    def are_present(self, position: int, found: torch.Tensor) -> bool:
        """Whether the peer's blocks had the announced generations; `found` by row."""
        there = self.is_there[position]
        wanted = (self._generations[at] for at in self._at[position][there])
        rows = self._rows[position][there]
        return all(int(found[row]) == value for row, value in zip(rows, wanted, strict=True))

    def expected(self, announced: NDArray[np.int64], positions: Sequence[int]) -> NDArray[np.int64]:
        """From [peer's blocks, planes, heads, source parts] to [positions, planes, heads, target
        parts]; anything where nothing is there."""
        chosen = list(positions)
        found = announced[self._at[chosen], :, :, self._part[chosen]]
        return np.moveaxis(found, 1, -1)

    def num_granules(self, positions: Sequence[int]) -> int:
        """To be read."""
        return int(self.is_there[list(positions)].sum())

    def _pairs(
        self, remote: NDArray[np.int64], local: NDArray[np.int64], positions: Sequence[int]
    ) -> tuple[list[int], list[int]]:
        chosen = list(positions)
        there = self.is_there[chosen]
        return remote[chosen][there].tolist(), local[chosen][there].tolist()


def _check_covered(is_there: NDArray[np.bool_], job: ReadJob) -> None:
    """All of every block, but for the end of the last one."""
    flat = is_there.ravel()
    num_there = int(flat.sum())
    least = is_there.size - is_there.shape[1] + 1
    if num_there < least or not flat[:num_there].all():
        raise TransferFailed(
            f"malformed job: {job.span.num_blocks} of the peer's blocks from {job.span.first_index}"
            f" on do not make {job.num_blocks} of ours from {job.first_index} on"
        )
