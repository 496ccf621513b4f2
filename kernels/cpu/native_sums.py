"""The sums over the ranks among the lines of a native form.

    ... | sum | show ... product | sum | show ... product | sum | show ... logits | gather

A product that is made only to be summed is written where the other ranks look for it, and so are
logits that another rank alone wants: in a tray of the ranks'. Which tray that is follows from the
collective before, so it is asked for behind that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeGuard

from kernels.cpu.grouped_linear import GroupedLinearRecord
from kernels.cpu.native_form import NativeLine
from kernels.cpu.step_records import (
    LOGITS,
    AllReduceRecord,
    GatherLogitsRecord,
    PanelLinearRecord,
    ShowRowsRecord,
)
from kernels.tape.collective import NativeCalls, NativeCollective
from kernels.tape.recording import NoNativeForm
from kernels.tape.rows import Rows

SHOWN: Final = -2
"""Beside the places of a recording, which count from 0."""


class NativeSums:
    """Of one native form in the making."""

    def __init__(self, lines: list[NativeLine], place_of: Callable[[Rows], Rows]) -> None:
        """Adds to `lines`; `place_of` makes a place of the workspace."""
        self.collective: NativeCollective | None = None
        """None: there are none."""
        self.lent: frozenset[int] = frozenset()
        """See NativeForm."""
        self._lines, self._place_of = lines, place_of
        self._behind_last = 0

    def add(self, collective: NativeCollective, rows: Rows) -> None:
        """Of `rows`, in place."""
        line, made = _record(collective.native, rows), self._lines[-1]
        if self.collective is not None and is_product_to(made, rows.place):
            shown = self._place_of(Rows(SHOWN, rows.width, rows.dtype))
            self._show(collective.native.sum_tray, shown, instead=rows.place)
            made.out = line.rows = shown.place
            self.lent = frozenset((shown.place,))
        self._lines.append(line)
        self.collective, self._behind_last = collective, len(self._lines)

    def gather_logits(self, logits: Rows, root: int) -> None:
        """Of a form that is whole, for the rank `root`. Logits that no product makes are gathered
        once the program is done: they lie where they lie."""
        sums = self.collective
        if sums is None or not is_product_to(self._lines[-1], LOGITS):
            return
        if sums.rank != root:
            self._show(sums.native.gather_tray, logits, instead=LOGITS)
        line = GatherLogitsRecord(
            gather=sums.native.gather,
            context=sums.native.context,
            root=root,
            is_root=sums.rank == root,
            row_bytes=logits.row_bytes,
        )
        self._lines.append(line)

    def _show(self, tray: int, rows: Rows, *, instead: int) -> None:
        assert self.collective is not None
        line = ShowRowsRecord(
            tray=tray,
            context=self.collective.native.context,
            place=rows.place,
            row_bytes=rows.row_bytes,
            instead=instead,
        )
        self._lines.insert(self._behind_last, line)


def is_product_to(
    line: NativeLine, place: int
) -> TypeGuard[PanelLinearRecord | GroupedLinearRecord]:
    """Whether it writes there, and can wherever that lies."""
    return isinstance(line, PanelLinearRecord | GroupedLinearRecord) and line.out == place


def _record(native: NativeCalls, rows: Rows) -> AllReduceRecord:
    if rows.dtype not in native.types:
        raise NoNativeForm(f"a sum of {rows.dtype}")
    return AllReduceRecord(
        add=native.add,
        context=native.context,
        type=native.types[rows.dtype],
        rows=rows.place,
        out=rows.place,
        width=rows.width,
    )
