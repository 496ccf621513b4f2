"""What one job's blocks are made of at the peer: blocks of the same size, or granules of others.

A block of ours is a row of granules, which lie in one or several of the peer's blocks. Of the last
block of a prompt the peer may have only the first ones: behind them there is nothing to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from cluster.errors import TransferFailed
from kvtransfer.read_job import ReadJob
from kvtransfer.resharding import Resharding

Digests = NDArray[np.int64]
"""[num_blocks, planes, heads, parts]."""


class JobBlocks(Protocol):
    """By positions of our blocks in the job."""

    def slots(self, positions: Sequence[int]) -> tuple[list[int], list[int]]:
        """(granules in the peer's pool, in the local one) to be read; see BlockReads."""

    def generations(self, positions: Sequence[int]) -> tuple[list[int], list[int]]:
        """(the peer's blocks, rows of `generations_read`) to be read."""

    def are_present(self, position: int, found: torch.Tensor) -> bool:
        """Whether the peer's blocks had the announced generations; `found` by row."""

    def matching(self, ours: Digests, announced: Digests, positions: Sequence[int]) -> list[bool]:
        """Whether all that there is of each block has the announced digests; `ours` are of these
        positions, `announced` of all of the peer's blocks."""

    def num_granules(self, positions: Sequence[int]) -> int:
        """To be read."""


def job_blocks(job: ReadJob, fit: Resharding, num_slots: int) -> JobBlocks:
    """`num_slots`: of the local pool. Raises TransferFailed for a job whose blocks are not those of
    its span."""
    whole = fit.is_same_size and job.into in (None, job.span.run)
    return WholeBlocks(job) if whole else Granules(job, fit, num_slots)


class WholeBlocks:
    """Of a peer whose blocks are as ours. See JobBlocks."""

    def __init__(self, job: ReadJob) -> None:
        self._span, self._local = job.span, job.local_block_ids

    def slots(self, positions: Sequence[int]) -> tuple[list[int], list[int]]:
        """A block is a granule."""
        remote, local = self._span.block_ids, self._local
        return [remote[at] for at in positions], [local[at] for at in positions]

    def generations(self, positions: Sequence[int]) -> tuple[list[int], list[int]]:
        """The row of a block is its slot."""
        return self.slots(positions)

    def are_present(self, position: int, found: torch.Tensor) -> bool:
        """One generation each."""
        return int(found[self._local[position]]) == self._span.generations[position]

    def matching(self, ours: Digests, announced: Digests, positions: Sequence[int]) -> list[bool]:
        """Block by block."""
        num_blocks = len(positions)
        equal = ours.reshape(num_blocks, -1) == announced[positions].reshape(num_blocks, -1)
        matching: list[bool] = equal.all(axis=1).tolist()
        return matching

    def num_granules(self, positions: Sequence[int]) -> int:
        """As many as blocks."""
        return len(positions)


class Granules:
    """Of a peer whose blocks have another size. See JobBlocks; arrays are [num_blocks,
    target_parts]."""

    def __init__(self, job: ReadJob, fit: Resharding, num_slots: int) -> None:
        parts = np.arange(fit.target_parts)
        index = (job.first_index + np.arange(job.num_blocks)[:, None]) * fit.target_parts + parts
        at = index // fit.source_parts - job.span.first_index
        self._is_there = (at >= 0) & (at < job.span.num_blocks)
        _check_covered(self._is_there, job)
        self._at = np.where(self._is_there, at, 0)
        self._part = index % fit.source_parts
        self._blocks = np.asarray(job.span.block_ids)[self._at]
        self._remote = self._blocks * fit.source_parts + self._part
        slots = np.asarray(job.local_block_ids)[:, None]
        self._local = slots * fit.target_parts + parts
        self._rows = parts * num_slots + slots
        self._generations = job.span.generations

    def slots(self, positions: Sequence[int]) -> tuple[list[int], list[int]]:
        """Those that the peer has."""
        return self._pairs(self._remote, self._local, positions)

    def generations(self, positions: Sequence[int]) -> tuple[list[int], list[int]]:
        """Each part of ours has a row of its own."""
        return self._pairs(self._blocks, self._rows, positions)

    def are_present(self, position: int, found: torch.Tensor) -> bool:
        """All blocks that it is made of."""
        there = self._is_there[position]
        wanted = (self._generations[at] for at in self._at[position][there])
        rows = self._rows[position][there]
        return all(int(found[row]) == value for row, value in zip(rows, wanted, strict=True))

    def matching(self, ours: Digests, announced: Digests, positions: Sequence[int]) -> list[bool]:
        """Granule by granule."""
        chosen = list(positions)
        theirs = announced[self._at[chosen], :, :, self._part[chosen]]  # [num_ids, parts, ...]
        is_nothing = ~self._is_there[chosen][:, None, None, :]
        equal = (ours == np.moveaxis(theirs, 1, -1)) | is_nothing
        matching: list[bool] = equal.all(axis=(1, 2, 3)).tolist()
        return matching

    def num_granules(self, positions: Sequence[int]) -> int:
        """Without those that the peer does not have."""
        return int(self._is_there[list(positions)].sum())

    def _pairs(
        self, remote: NDArray[np.int64], local: NDArray[np.int64], positions: Sequence[int]
    ) -> tuple[list[int], list[int]]:
        chosen = list(positions)
        there = self._is_there[chosen]
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
