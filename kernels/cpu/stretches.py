"""Which places of a program hold nothing from one stretch to the next; see `native/stretch.h`."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.cpu.native_form import NativeLine
from kernels.cpu.step_records import LOGITS


def local_places(lines: Sequence[NativeLine]) -> frozenset[int]:
    """Places that every stretch writes before it reads them, and that nothing between two reads.

    A stretch is a run of records that go by rows. The logits are what a program leaves.
    """
    touched: set[int] = set()
    lasting: set[int] = set()
    written: set[int] = set()
    for record in lines:
        reads, writes = _places(record, record.reads), _places(record, record.writes)
        touched |= reads | writes
        if record.by_rows:
            lasting |= reads - written
            written |= writes
        else:
            lasting |= reads | writes
            written = set()
    return frozenset(touched - lasting - {LOGITS})


def _places(record: NativeLine, fields: Sequence[str]) -> set[int]:
    return {getattr(record, field) for field in fields}
