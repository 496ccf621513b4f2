"""A recording in its native form: records for the library, and the cuts between them.

    records ... | cut: all-reduce of some rows | records ... | cut | records ...

Each run of records is one call of the library. A single rank has no cuts, and one call; so have
ranks whose collective sums for native code: there a sum is a record like the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from kernels.cpu.step_records import KeepWantedRecord, OperationRecord
from kernels.tape.collective import Collective, NativeCollective
from kernels.tape.operations import AllGather
from kernels.tape.rows import Rows


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a program stops, sums rows over the ranks, and goes on."""

    reads: ClassVar[tuple[str, ...]] = ("place",)
    writes: ClassVar[tuple[str, ...]] = ("place",)
    by_rows: ClassVar[bool] = False

    collective: Collective
    rows: Rows

    @property
    def place(self) -> int:
        """Of the rows."""
        return self.rows.place


NativeLine = OperationRecord | Cut
"""Of a native form: one operation, or a stop between two."""


@dataclass(frozen=True, slots=True)
class KvRows:
    """What a program asks of a pool: keys and values, [.., 2, num_kv_heads, .., head_dim]."""

    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    """Of a plain pool; a quantized one is taken too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeForm:
    """What `kernels/cpu/step_program.py` runs."""

    lines: Sequence[NativeLine]
    row_bytes: Sequence[int]
    """Of each place."""
    lent: frozenset[int]
    """Places that are no part of the workspace: memory of the ranks' sums."""
    kv: KvRows
    num_layers: int
    vocab_size: int
    """Of this rank's head."""
    sums: NativeCollective | None
    """Whose sums are among the records; None: there are none."""
    gather: AllGather | None
    """Puts the ranks' logits side by side: the last record does, where it is a gather; None: they
    are whole."""
    left: tuple[Rows, ...]
    """Places of the workspace that are read once a step is done."""
    kept: object
    """Owns what the records point to."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The records of one call, and the cut behind it; none behind the last."""

    records: tuple[OperationRecord, ...]
    cut: Cut | None
    has_wanted: bool
    """Whether only rows with wanted logits are left at its end."""


def segments_of(lines: Sequence[NativeLine]) -> list[Segment]:
    """A call begins with all rows: one behind `keep_wanted` says so again."""
    segments: list[Segment] = []
    records: list[OperationRecord] = []
    has_wanted = False
    for line in lines:
        if isinstance(line, Cut):
            segments.append(Segment(tuple(records), line, has_wanted))
            records = [KeepWantedRecord()] if has_wanted else []
        else:
            records.append(line)
            has_wanted = has_wanted or isinstance(line, KeepWantedRecord)
    return [*segments, Segment(tuple(records), None, has_wanted)]
