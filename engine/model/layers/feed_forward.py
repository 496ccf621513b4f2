"""The interface of a layer's feed-forward, and the plain one: a gate, an up and a down matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kernels.adapters import AdapterSite
from kernels.gated_mul import GateActivation
from kernels.linear import Linear
from kernels.tape.rows import Rows
from kernels.tape.tape import Tape


class FeedForward(Protocol):
    """One layer's: a gated MLP, or a mixture of experts."""

    @property
    def num_bytes(self) -> int:
        """Memory of the matrices."""

    def record(self, tape: Tape, x: Rows) -> Rows:
        """x, the norm of the residual -> what is added to it, summed over the ranks: of all rows,
        or of the rank's own where the tape splits them."""


@dataclass(frozen=True, slots=True)
class GatedMlp:
    """down(activation(gate) * up), with gate and up in one matrix."""

    gate_up: Linear
    down: Linear
    activation: GateActivation
    gate_up_adapters: AdapterSite | None = None
    down_adapters: AdapterSite | None = None

    @property
    def num_bytes(self) -> int:
        """See FeedForward."""
        return self.gate_up.num_bytes + self.down.num_bytes

    def record(self, tape: Tape, x: Rows) -> Rows:
        """See FeedForward."""
        return tape.to_residual(self.record_share(tape, tape.from_residual(x)))

    def record_share(self, tape: Tape, x: Rows) -> Rows:
        """As `record`, but this rank's share of the sum."""
        gate_up = tape.linear(self.gate_up, x, "gate_up")
        gated = tape.gated_mul(tape.adapt(self.gate_up_adapters, x, gate_up), self.activation)
        return tape.adapt(self.down_adapters, gated, tape.linear(self.down, gated, "branch"))
