"""The interface of a packed matrix that a native program can multiply with."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from kernels.cpu.step_records import OperationRecord
from kernels.tape.rows import Rows, VocabularyPart


@runtime_checkable
class NativeMatrix(Protocol):
    """A `kernels.linear.Linear` with records of its own. It owns what they point to; places are
    those of the native program."""

    def product_record(self, x: Rows, out: Rows) -> OperationRecord:
        """out = x @ weight.T + bias. Raises NoNativeForm."""

    def rows_record(self, out: Rows, part: VocabularyPart | None = None) -> OperationRecord:
        """out = rows of the weight, by the step's token ids; zeros for those of other parts.
        Raises NoNativeForm."""
