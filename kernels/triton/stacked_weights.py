"""The matrices of a layer's experts behind each other, plain, in low-bit groups, or 8-bit floats.

    plain   [num_experts, 1, out, in]; one "tile" of inputs, no scales
    packed  [num_experts, in / width, out, bytes of a tile], as in grouped_values

An 8-bit float weight is a group without minimums. Its activations stay as they are: experts have
few rows, for which only the bytes of the weights count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from kernels.door import require
from kernels.triton.gpu import gpu_of
from kernels.triton.grouped_values import MAX_WIDTH, MIN_WIDTH, GroupedValues, pack
from kernels.triton.pack_linear import in_whole_tiles
from kernels.weights import Fp8Weight, GroupedWeight, Weight, plain

_PLAIN_WIDTH = 64
"""Inputs that a product with plain weights takes at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedWeights:
    """`scales` and the rest are None for plain weights, `minimums` for 8-bit floats too."""

    values: torch.Tensor
    scales: torch.Tensor | None  # float16 [num_experts, in / group, out]
    minimums: torch.Tensor | None
    factors: torch.Tensor | None  # float32 [num_experts, out]
    bits: int
    """16: plain, whatever its dtype."""
    width: int
    group: int
    shape: tuple[int, int]
    """[out, in] of one expert."""

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        held = (self.values, self.scales, self.minimums, self.factors)
        return sum(tensor.nbytes for tensor in held if tensor is not None)

    def arguments(self) -> tuple[torch.Tensor | None, ...]:
        """Values, scales, minimums (or scales again, not to be read) and factors of a launch."""
        minimums = self.scales if self.minimums is None else self.minimums
        return self.values, self.scales, minimums, self.factors


def stack(weights: Sequence[Weight]) -> StackedWeights:
    """Asks for each weight once and packs it before the next. All of one shape and kind.

    Weights that have no packed form are dequantized: groups that do not come in multiples of 32
    inputs, even put together.
    """
    require(len(weights) > 0, "no experts")
    first = _tiles(weights[0])
    into = StackedWeights(
        values=first.values.new_empty((len(weights), *first.values.shape)),
        scales=_room(first.scales, len(weights)),
        minimums=_room(first.minimums, len(weights)),
        factors=_room(first.factors, len(weights)),
        bits=first.bits,
        width=first.width,
        group=first.group,
        shape=first.shape,
    )
    _put(into, 0, first)
    for expert in range(1, len(weights)):
        _put(into, expert, _tiles(weights[expert]))
    return into


def chosen(stacks: Sequence[StackedWeights], places: Sequence[int]) -> StackedWeights:
    """Some experts of these, counted through, in a stack of their own. All are of one kind."""
    for stacked in stacks:
        _require_alike(stacks[0], stacked)

    def picked(parts: list[torch.Tensor | None]) -> torch.Tensor | None:
        experts = [expert for part in parts if part is not None for expert in part]
        return torch.stack([experts[place] for place in places]) if experts else None

    values = picked([stacked.values for stacked in stacks])
    assert values is not None
    return replace(
        stacks[0],
        values=values,
        scales=picked([stacked.scales for stacked in stacks]),
        minimums=picked([stacked.minimums for stacked in stacks]),
        factors=picked([stacked.factors for stacked in stacks]),
    )


def _tiles(weight: Weight) -> StackedWeights:
    """One expert's, without the first dimension."""
    if isinstance(weight, GroupedWeight):
        grouped = in_whole_tiles(weight)
        if grouped is not None:
            return _of_groups(pack(grouped))
    elif isinstance(weight, Fp8Weight) and _keeps_floats(weight):
        packed = _of_floats(weight)
        if packed is not None:
            return packed
    dense = plain(weight)
    outputs, inputs = dense.shape
    return StackedWeights(
        values=dense[None],
        scales=None,
        minimums=None,
        factors=None,
        bits=16,
        width=_PLAIN_WIDTH,
        group=inputs,
        shape=(outputs, inputs),
    )


def _keeps_floats(weight: Fp8Weight) -> bool:
    device = weight.values.device
    can_convert = device.type != "cuda" or gpu_of(device).has_fp8
    return can_convert and weight.shape[1] % MIN_WIDTH == 0


def _of_groups(packed: GroupedValues) -> StackedWeights:
    return StackedWeights(
        values=packed.values,
        scales=packed.scales,
        minimums=packed.minimums,
        factors=packed.factors,
        bits=packed.bits,
        width=packed.width,
        group=packed.group,
        shape=packed.shape,
    )


def _of_floats(weight: Fp8Weight) -> StackedWeights | None:
    """None where a scale's inputs are not whole tiles."""
    (outputs, inputs), (rows, columns) = weight.shape, weight.block
    group = min(columns, inputs)
    width = next((w for w in (MAX_WIDTH, 64, MIN_WIDTH) if group % w == inputs % w == 0), None)
    if width is None or inputs % group:
        return None
    scales = weight.scales.repeat_interleave(rows, 0)[:outputs] if rows > 1 else weight.scales
    scales = scales.expand(outputs, scales.shape[1])  # [out, in / group]
    factors = torch.exp2(torch.log2(scales.abs().amax(1).clamp(min=2.0**-100)).floor())
    return StackedWeights(
        values=weight.values.view(outputs, -1, width).transpose(0, 1),
        scales=(scales / factors[:, None]).half().T,
        minimums=None,
        factors=factors,
        bits=8,
        width=width,
        group=group,
        shape=(outputs, inputs),
    )


def _room(part: torch.Tensor | None, num_experts: int) -> torch.Tensor | None:
    if part is None:
        return None
    return torch.empty((num_experts, *part.shape), dtype=part.dtype, device=part.device)


def _put(into: StackedWeights, expert: int, one: StackedWeights) -> None:
    _require_alike(into, one, f"expert {expert}")
    pairs = (
        (into.values, one.values),
        (into.scales, one.scales),
        (into.minimums, one.minimums),
        (into.factors, one.factors),
    )
    for target, source in pairs:
        if target is not None and source is not None:
            target[expert].copy_(source)


def _require_alike(first: StackedWeights, other: StackedWeights, name: str = "another") -> None:
    same = (first.bits, first.width, first.group, first.shape)
    own = (other.bits, other.width, other.group, other.shape)
    require(
        same == own and first.values.dtype == other.values.dtype,
        f"{name} is stored as {own} of {other.values.dtype} (bits, width, group, shape), "
        f"others as {same} of {first.values.dtype}; the experts of a layer are stored alike",
    )
