"""Where a native program leaves its logits: a tensor of each step's own.

one rank                        [num_logits, vocab_size]
of several that all want them   its own columns, which are gathered afterwards
the one that wants them         its own columns among room for all, which the program fills
any other                       its own columns, in a tray of the ranks' where they fit
"""

from __future__ import annotations

import torch

from kernels.cpu.native_form import NativeForm
from kernels.cpu.step_records import GatherLogitsRecord, StepRecord
from kernels.tape.collective import NativeCollective

_BYTES = torch.float32.itemsize


class LogitRows:
    """Of one program."""

    def __init__(self, form: NativeForm) -> None:
        self._gather, self._native = form.gather, _native_of(form)
        self._own_width = self._width = form.vocab_size
        self._first = 0
        if self._native is not None and self._native.rank == self._root:
            self._first = self._native.rank * self._own_width
            self._width *= self._native.world_size

    @property
    def row_bytes(self) -> int:
        """From a row to the next."""
        return self._width * _BYTES

    def make(self, step: StepRecord) -> torch.Tensor:
        """For a step, which is told where they are."""
        rows = torch.empty((step.num_logits, self._width), dtype=torch.float32)
        step.logits, step.logits_stride = rows.data_ptr() + self._first * _BYTES, self._width
        return rows

    def gathered(self, rows: torch.Tensor) -> torch.Tensor:
        """Of all ranks, once the step is done; nothing where another one wants them."""
        if self._gather is None:
            return rows
        if self._native is None:
            return self._gather.gathered(rows)
        if self._native.rank == self._root:
            return rows[:, : self._gather.out.width].contiguous()
        return rows[:0]

    @property
    def _root(self) -> int:
        assert self._gather is not None and self._gather.root is not None
        return self._gather.root


def _native_of(form: NativeForm) -> NativeCollective | None:
    """Whose ranks the program gathers from by itself."""
    return form.sums if isinstance(form.lines[-1], GatherLogitsRecord) else None
