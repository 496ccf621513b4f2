"""The interface of a layer's attention, its projections included."""

from __future__ import annotations

from typing import Protocol

from kernels.tape.rows import Rows
from kernels.tape.tape import Tape


class Attention(Protocol):
    """One layer's. Built from the layer's weights, which it takes over."""

    @property
    def num_bytes(self) -> int:
        """Memory of the matrices."""

    def attend(self, tape: Tape, x: Rows, layer: int) -> Rows:
        """Of all rows of the normed residual; writes the step's KV to that layer of the pool."""

    def project(self, tape: Tape, attended: Rows) -> Rows:
        """What is added to the residual, [num_rows, hidden], summed over the ranks; the rank's own
        rows where the tape splits them. The last layer asks for some rows only."""
