"""Some rows and columns of a stored tensor, each a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorPart:
    """None: all there are. A vector has rows only."""

    rows: range | None = None
    columns: range | None = None

    def within(self, shape: Sequence[int]) -> tuple[range, ...]:
        """A run for each dimension of a vector or a matrix. Raises ValueError for what lies
        outside."""
        asked = (self.rows, self.columns)[: len(shape)]
        runs = [range(size) if run is None else run for run, size in zip(asked, shape, strict=True)]
        if any(run.stop > size for run, size in zip(runs, shape, strict=True)):
            raise ValueError(f"{self} of a tensor of shape {tuple(shape)}")
        return tuple(runs)

    def is_all_of(self, shape: Sequence[int]) -> bool:
        """Whether nothing is left out."""
        if self == WHOLE:
            return True
        return all(len(run) == size for run, size in zip(self.within(shape), shape, strict=True))

    def num_values(self, shape: Sequence[int]) -> int:
        """Numbers in the part."""
        return math.prod(shape) if self == WHOLE else math.prod(map(len, self.within(shape)))


WHOLE = TensorPart()


def times(run: range, size: int) -> range:
    """A run of things of `size` rows or columns each, in rows or columns."""
    return range(run.start * size, run.stop * size)


def units_of(run: range, size: int) -> range:
    """The units of `size` that hold a run: words of packed values, blocks, groups."""
    return range(run.start // size, -(-run.stop // size))


def inside_units(run: range, size: int) -> slice:
    """Where a run lies in the units that hold it."""
    first = run.start % size
    return slice(first, first + len(run))
