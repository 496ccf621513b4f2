"""The end of a product whose inputs were split: partial sums are added, scaled and biased."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_COLUMNS = 1024


# grid [num_rows, cdiv(out, COLUMNS)]
@triton.jit(do_not_specialize=("num_rows", "num_splits"))
def _add_splits(
    parts,
    factors,
    bias,
    out,
    num_rows,
    out_features,
    num_splits,
    COLUMNS: tl.constexpr,
    HAS_FACTORS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    outputs = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = outputs < out_features
    total = tl.zeros([COLUMNS], tl.float32)
    for split in range(0, num_splits):
        part = parts + (split * num_rows + row) * out_features
        total += tl.load(part + outputs, mask=inside, other=0.0)
    if HAS_FACTORS:
        total *= tl.load(factors + outputs, mask=inside, other=0.0)
    if HAS_BIAS:
        total += tl.load(bias + outputs, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * out_features + outputs, total.to(out.dtype.element_ty), mask=inside)


def add_splits(
    parts: torch.Tensor,
    factors: torch.Tensor | None,
    bias: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """out = sum over parts * factors + bias, on the current device.

    parts  float32 [num_splits, num_rows, out_features]; factors float32 [out_features]
    out    [num_rows, out_features], written
    """
    num_splits, num_rows, out_features = parts.shape
    _add_splits[(num_rows, triton.cdiv(out_features, _COLUMNS))](
        parts,
        factors,
        bias,
        out,
        num_rows,
        out_features,
        num_splits,
        COLUMNS=_COLUMNS,
        HAS_FACTORS=factors is not None,
        HAS_BIAS=bias is not None,
    )
