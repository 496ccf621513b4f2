"""x @ weight.T + bias for a weight of low-bit groups, with activations rounded to bytes.

Each row of x is rounded per span of 32 inputs to 127 steps on either side of zero:

    x[i] = x_scale[s] * q[i]            x_scale = largest |x| of the span / 127

In the spans of a row with the largest scales what that misses is kept too, in as many steps of
x_scale / 254, as if q had 16 bits: there the outliers are, whose spans lose most. Spans are so fine
where the scale is four times the row's mean, one in eight at most; of products that are wanted in
float32, as logits are, every second one is.

The weight is centred, w[i] = factor * (scale[g] * (value[i] - centre) + minimum[g]), and

    out = factor * (sum over s of scale[g] * x_scale[s] * (sum over i in s of (value - centre) * q)
                    + sum over g of minimum[g] * (sum over s in g of x_scale[s] * (sum of q)))

Inner sums of bytes are exact integers. Scales are float16 once an output's largest is brought below
one by a power of two, which loses nothing of GGUF's; minimums are bfloat16, of which a symmetric
format needs none. A 4-bit weight with minimums has both as integers of 16 bits; what a span adds is
then exact before it is multiplied by x_scale. Source of the rounding per 32: llama.cpp's Q8_1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F

from kernels.weights import GroupedWeight

SPAN: Final = 32
"""Inputs that share a scale of the activations."""
_LARGEST: Final = 127
_LARGEST_OF_PAIR: Final = 32767
_LEAST: Final = 1e-30
"""Spans without a larger value become zeros: 127 divided by less is not finite."""
_FINE_STEPS: Final = 254
_INDEX_BITS: Final = 12
"""Of a scale's 32; spans that differ in no other bit are taken in their order."""
MOST_INPUTS: Final = SPAN << _INDEX_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class CentredGroups:
    """A weight as the kernel multiplies it, in 4 or 8 bits."""

    values: torch.Tensor  # uint8 [out, in]
    scales: torch.Tensor  # float16 or, when paired, int16 [out, num_groups]
    minimums: torch.Tensor | None  # bfloat16 or int16 [out, num_groups], above -centre * scale
    factors: torch.Tensor  # float32 [out]
    bits: int

    @property
    def is_paired(self) -> bool:
        """Whether scales and minimums are integers."""
        return self.scales.dtype is torch.int16

    @property
    def centre(self) -> int:
        """The value that stands for zero, or nearly."""
        return 1 << (self.bits - 1)

    @property
    def num_groups(self) -> int:
        """Of a row."""
        return self.scales.shape[1]

    @property
    def group(self) -> int:
        """Inputs that share a scale."""
        return self.values.shape[1] // self.num_groups

    def dequantize(self) -> torch.Tensor:
        """float32 [out, in]."""
        offsets = self.values.float() - self.centre
        weight = offsets.view(*self.scales.shape, -1) * self.scales[..., None].float()
        if self.minimums is not None:
            weight = weight + self.minimums[..., None].float()
        return weight.view(self.values.shape) * self.factors[:, None]


def centre(weight: GroupedWeight) -> CentredGroups:
    """Values of 5 to 7 bits are kept as bytes."""
    bits = 4 if weight.bits <= 4 else 8
    minimums = weight.minimums + weight.scales * (1 << (bits - 1))
    if bits == 4 and minimums.any():
        return _paired(weight, minimums)
    exponents = torch.frexp(weight.scales.abs().amax(dim=1))[1]
    factors = torch.ldexp(torch.ones(weight.shape[0]), exponents)
    return CentredGroups(
        values=weight.values,
        scales=(weight.scales / factors[:, None]).half(),
        minimums=(minimums / factors[:, None]).bfloat16() if minimums.any() else None,
        factors=factors,
        bits=bits,
    )


def _paired(weight: GroupedWeight, minimums: torch.Tensor) -> CentredGroups:
    largest = torch.maximum(weight.scales.abs(), minimums.abs()).amax(dim=1).double()
    factors = torch.where(largest > 0, largest / _LARGEST_OF_PAIR, 1.0)
    scales, minimums = (
        (tensor / factors[:, None]).round().to(torch.int16) for tensor in (weight.scales, minimums)
    )
    return CentredGroups(
        values=weight.values, scales=scales, minimums=minimums, factors=factors.float(), bits=4
    )


@dataclass(frozen=True, slots=True)
class FineSpans:
    """Which spans of a row: those of the largest scales."""

    one_in: int
    """At most one of so many, but one at least."""
    least: float
    """Only where the scale is so many times the mean of the row's."""

    def of(self, scales: torch.Tensor) -> torch.Tensor:
        """float32 [num_rows, spans] -> bool of the same shape."""
        num_spans, mask = scales.shape[1], (1 << _INDEX_BITS) - 1
        keys = scales.contiguous().view(torch.int32) & ~mask & 0x7FFFFFFF
        keys = keys | (mask - torch.arange(num_spans, dtype=torch.int32))
        largest = keys.topk(max(1, num_spans // self.one_in), dim=1).indices
        chosen = torch.zeros_like(scales, dtype=torch.bool).scatter_(1, largest, True)
        return chosen & (scales >= self.least * scales.mean(dim=1, keepdim=True))


FINE_LOGITS: Final = FineSpans(one_in=2, least=0.0)
FINE_BRANCHES: Final = FineSpans(one_in=8, least=4.0)


@dataclass(frozen=True, slots=True)
class QuantizedRows:
    """x = scales * (whole + rest / 254)."""

    whole: torch.Tensor  # float32 [num_rows, spans, 32], whole numbers up to 127
    rest: torch.Tensor  # likewise; zero where a span is not fine
    scales: torch.Tensor  # float32 [num_rows, spans]

    @property
    def sums(self) -> torch.Tensor:
        """Of a span's values: float32 [num_rows, spans]."""
        rest = self.rest.sum(dim=-1) * (self.scales / _FINE_STEPS)
        return self.whole.sum(dim=-1) * self.scales + rest


def quantize_rows(x: torch.Tensor, fine: FineSpans) -> QuantizedRows:
    """x [num_rows, in]."""
    spans = x.float().view(x.shape[0], x.shape[1] // SPAN, SPAN)
    largest = spans.abs().amax(dim=-1)
    scales = largest / _LARGEST
    inverse = torch.where(largest > _LEAST, torch.full_like(largest, _LARGEST) / largest, 0.0)
    whole = (spans * inverse[..., None]).round()
    missed = (spans.double() * inverse[..., None] - whole).float()  # rounded once
    rest = (missed * _FINE_STEPS).round() * fine.of(scales)[..., None]
    return QuantizedRows(whole, rest, scales)


def grouped_linear(
    x: torch.Tensor,
    weight: GroupedWeight,
    bias: torch.Tensor | None = None,
    *,
    out_dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """x [num_rows, in] -> `out_dtype` [num_rows, out]."""
    groups = centre(weight)
    rows = quantize_rows(x, FINE_LOGITS if out_dtype is torch.float32 else FINE_BRANCHES)
    spans_per_group = groups.group // SPAN
    offsets = (groups.values.float() - groups.centre).view(groups.values.shape[0], -1, SPAN)
    scales = groups.scales.float().repeat_interleave(spans_per_group, dim=1)  # [out, spans]
    sums = torch.zeros(x.shape[0], weight.shape[0])
    for values, x_scales in ((rows.whole, rows.scales), (rows.rest, rows.scales / _FINE_STEPS)):
        dots = torch.einsum("rsi,osi->ros", values, offsets)  # exact: below 2 ** 24
        sums = sums + (dots * x_scales[:, None] * scales).sum(dim=-1)
    if groups.minimums is not None:
        totals = rows.sums.view(-1, groups.num_groups, spans_per_group).sum(dim=-1)
        totals = totals if groups.is_paired else totals.bfloat16().float()
        sums = sums + F.linear(totals, groups.minimums.float())
    sums = sums * groups.factors
    return (sums if bias is None else sums + bias.float()).to(out_dtype)
