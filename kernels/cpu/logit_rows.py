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
_NOTHING = torch.empty((0, 0), dtype=torch.float32)


class LogitRows:
    """Of one program."""

    def __init__(self, form: NativeForm) -> None:
        self._gather, self._native = form.gather, _native_of(form)
        self._own_width = self._width = form.vocab_size
        self._first = 0
        if self._native is not None and self._native.rank == self._root:
            self._first = self._native.rank * self._own_width
            self._width *= self._native.world_size
        self._is_given_away = self._native is not None and self._native.rank != self._root
        self._kept, self._num_kept = _NOTHING, 0
        """Rows that nobody is given: where the tray is too small for them, step after step."""

    @property
    def row_bytes(self) -> int:
        """From a row to the next."""
        return self._width * _BYTES

    def make(self, step: StepRecord) -> torch.Tensor:
        """For a step, which is told where they are."""
        num_rows = step.num_logits
        if self._is_given_away and self._num_kept >= num_rows:
            return self._kept
        rows = torch.empty((num_rows, self._width), dtype=torch.float32)
        step.logits, step.logits_stride = rows.data_ptr() + self._first * _BYTES, self._width
        if self._is_given_away:
            self._kept, self._num_kept = rows, num_rows
        return rows

    def gathered(self, rows: torch.Tensor) -> torch.Tensor:
        """Of all ranks, once the step is done; nothing where another one wants them."""
        if self._gather is None:
            return rows
        if self._native is None:
            return self._gather.gathered(rows)
        if self._is_given_away:
            return _NOTHING
        width = self._gather.out.width
        return rows if width == self._width else rows[:, :width].contiguous()

    @property
    def _root(self) -> int:
        assert self._gather is not None and self._gather.root is not None
        return self._gather.root


def _native_of(form: NativeForm) -> NativeCollective | None:
    """Whose ranks the program gathers from by itself."""
    return form.sums if isinstance(form.lines[-1], GatherLogitsRecord) else None
