"""Which activations of a program never leave the rows that are under way."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kernels.cpu.step_records import LOGITS, OperationRecord
from kernels.cpu.stretches import local_places


class Record(OperationRecord):
    """Reads and writes the places that its fields are set to."""

    reads = ("source",)
    writes = ("target",)

    def __init__(self, source: int, target: int) -> None:
        super().__init__()
        self.source, self.target = source, target


class Barrier(Record):
    by_rows = False


def op(source: int, target: int) -> Record:
    return Record(source, target)


def barrier(source: int, target: int) -> Barrier:
    return Barrier(source, target)


@pytest.mark.parametrize(
    ("records", "local"),
    [
        ([barrier(1, 2), op(2, 3), op(3, 4), op(4, 1), barrier(1, 2)], {3, 4}),
        ([op(1, 3), barrier(5, 6), op(3, 4)], {4}),  # 3 is read in another stretch
        ([op(1, 3), op(3, 4), barrier(5, 6), op(1, 3), op(3, 4)], {3, 4}),  # written anew in each
        ([op(1, 3), op(3, 4), barrier(4, 6)], {3}),  # 4 is read between stretches
        ([op(1, 3), op(3, 3), op(3, LOGITS)], {3}),  # logits are for the caller
        ([op(3, 3), op(3, 4)], {4}),  # read before it is written
        ([], set()),
    ],
)
def test_a_place_is_local_when_nothing_passes_from_stretch_to_stretch_in_it(
    records: Sequence[Record], local: set[int]
) -> None:
    assert local_places(records) == local
