"""The operation of adapters (`kernels/adapters.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kernels.adapters import AdapterSite
from kernels.door import require
from kernels.tape.operations import Operation
from kernels.tape.rows import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class AddAdapters(Operation):
    """Adds to the product of `x`, in place, what each row's adapter makes of it."""

    makes: ClassVar[tuple[str, ...]] = ()
    site: AdapterSite
    x: Rows
    out: Rows
    is_wanted: bool
    """Whether these are the rows with wanted logits, and not all of the step's."""

    def __post_init__(self) -> None:
        inputs, outputs = self.site.in_features, self.site.out_features
        require(self.x.width == inputs, f"x has width {self.x.width}; needed: {inputs}")
        require(self.out.width >= outputs, f"out has width {self.out.width}; needed: {outputs}")
        require(self.out.dtype is self.site.dtype, f"rows in {self.out.dtype}")
