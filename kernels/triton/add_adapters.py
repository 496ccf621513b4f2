"""Adapters beside products: row by row in steps that decode, in tiles where there are prompts."""

from __future__ import annotations

from typing import Final

import torch

from kernels.adapters import AdapterSite, check_adapters
from kernels.triton.adapter_decode import add_to_rows
from kernels.triton.adapter_prefill import add_to_tiles
from kernels.triton.launch import on_device_of

_FEW_ROWS: Final = 8
"""Of a sequence, that still go row by row: decodes, and drafts that are verified."""


def add_adapters(
    x: torch.Tensor, out: torch.Tensor, slots: torch.Tensor, site: AdapterSite, longest: int
) -> None:
    """See kernels/adapters.py. Sums are in float32, what lies between the two products is rounded
    to the rows' dtype."""
    check_adapters(x, out, slots, site)
    if not len(slots):
        return
    most_ranks = min(site.max_lora_rank, len(site.parts[0].down))
    made = torch.empty((len(slots), most_ranks), dtype=torch.float32, device=x.device)
    add = add_to_rows if longest <= _FEW_ROWS else add_to_tiles
    with on_device_of(x):
        for part in site.parts:
            add(x, out, slots, site.starts, part, made)
