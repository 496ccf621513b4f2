"""Plays a recording in calls of the native library, one per segment: one in all for one rank, and
for ranks whose sums are native too.

The kernels are those that `kernels/tape/play.py` calls one by one, on the same numbers: the bits
are the same. Activations live in a workspace that grows to the largest step and is kept.
"""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass
from typing import Final

import torch

from kernels.cpu.logit_rows import LogitRows
from kernels.cpu.lowering import native_form
from kernels.cpu.native_form import NativeForm, Segment, segments_of
from kernels.cpu.step_inputs import StepInputs
from kernels.cpu.step_records import (
    LOGITS,
    ActivationsEntry,
    OperationEntry,
    OperationRecord,
    ProgramRecord,
    StepRecord,
)
from kernels.cpu.stretches import local_places
from kernels.cpu.team import TEAM
from kernels.tape.recording import Recording, StepQueries
from kernels.tape.rows import Rows

_LEAST_ROWS: Final = 64


def play_natively(library: ctypes.CDLL, recording: Recording) -> StepProgram:
    """Raises NoNativeForm."""
    return StepProgram(library, native_form(recording))


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of the library."""

    program: ProgramRecord
    segment: Segment
    kept: object
    """Owns what the program points to; the segment owns its records."""


class StepProgram:
    """A Player on the team of `kernels/cpu/team.py`."""

    why_by_kernels = ""
    has_alike_rows = True

    def __init__(self, library: ctypes.CDLL, form: NativeForm) -> None:
        self._run = library.splitserve_run_program
        self._form = form
        self._inputs = StepInputs(form.kv, form.num_layers)
        self._logits = LogitRows(form)
        places = _places(form, self._logits.row_bytes)
        self._calls = [_call(library, segment, places) for segment in segments_of(form.lines)]
        elsewhere = form.lent | {LOGITS}
        workspace_bytes = [0 if at in elsewhere else n for at, n in enumerate(form.row_bytes)]
        self._starts = [0, *itertools.accumulate(workspace_bytes)]  # bytes per row before a place
        self._workspace = torch.empty(0, dtype=torch.uint8)
        self._capacity_rows = 0

    @property
    def num_native_calls(self) -> int:
        """See Player."""
        return len(self._calls)

    @property
    def workspace_bytes(self) -> int:
        """Memory held for activations."""
        return self._workspace.nbytes

    def __call__(self, batch: StepQueries, kv: torch.Tensor) -> torch.Tensor:
        """See Player; pools may be plain or quantized.

        Raises ValueError for tensors of a wrong shape or dtype, IndexError for a token that the
        embedding does not have.
        """
        step = self._inputs.take(batch, kv)
        self._fit(step, max(step.num_tokens, step.num_logits))
        logits = self._logits.make(step)
        step.num_threads = TEAM.num_threads
        for call in self._calls:
            self._play(call, step)
            if step.num_unknown_tokens:
                raise IndexError(f"{step.num_unknown_tokens} token ids are not in the vocabulary")
            self._reduce(call.segment)
        return self._logits.gathered(logits)

    def left(self) -> tuple[torch.Tensor, ...]:
        """See Player."""
        num_rows = int(self._inputs.record.num_tokens)
        return tuple(self._view(rows, num_rows) for rows in self._form.left)

    def _play(self, call: _Call, step: StepRecord) -> None:
        def run() -> int:
            self._run(ctypes.addressof(call.program), ctypes.addressof(step))
            return int(step.sum_outcome)

        sums = self._form.sums
        if sums is None:
            run()
        else:
            sums.run_natively(run)

    def _reduce(self, segment: Segment) -> None:
        """What the cut behind the segment asks for, on a view of the workspace."""
        if segment.cut is None:
            return
        step, rows = self._inputs.record, segment.cut.rows
        num_rows = step.num_logits if segment.has_wanted else step.num_tokens
        segment.cut.collective.all_reduce(self._view(rows, num_rows))

    def _view(self, rows: Rows, num_rows: int) -> torch.Tensor:
        """[num_rows, width] of the workspace."""
        first = self._starts[rows.place] * self._capacity_rows
        memory = self._workspace[first : first + num_rows * rows.row_bytes]
        return memory.view(rows.dtype).view(num_rows, rows.width)

    def _fit(self, step: StepRecord, num_rows: int) -> None:
        """Powers of two: few different sizes, and every place stays aligned to a cache line."""
        if num_rows > self._capacity_rows:
            self._capacity_rows = max(_LEAST_ROWS, 1 << (num_rows - 1).bit_length())
            self._workspace = torch.empty(self._capacity_rows * self._starts[-1], dtype=torch.uint8)
            step.workspace = self._workspace.data_ptr()
            step.capacity_rows = self._capacity_rows


def _places(form: NativeForm, logits_bytes: int) -> ctypes.Array[ActivationsEntry]:
    local, row_bytes = local_places(form.lines), list(form.row_bytes)
    row_bytes[LOGITS] = logits_bytes
    entries = (
        ActivationsEntry(size, at in local, at in form.lent) for at, size in enumerate(row_bytes)
    )
    return (ActivationsEntry * len(row_bytes))(*entries)


def _call(library: ctypes.CDLL, segment: Segment, places: ctypes.Array[ActivationsEntry]) -> _Call:
    entries = [_entry(library, record) for record in segment.records]
    operations = (OperationEntry * len(entries))(*entries)
    program = ProgramRecord(
        operations=ctypes.addressof(operations),
        num_operations=len(entries),
        places=ctypes.addressof(places),
        num_places=len(places),
    )
    return _Call(program, segment, (operations, places))


def _entry(library: ctypes.CDLL, record: OperationRecord) -> OperationEntry:
    function = ctypes.cast(getattr(library, record.function), ctypes.c_void_p)
    return OperationEntry(function.value, ctypes.addressof(record), record.by_rows)
