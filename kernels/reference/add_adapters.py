"""Adapters beside a product, one after the other."""

from __future__ import annotations

import torch

from kernels.adapters import NO_ADAPTER, AdapterSite, check_adapters


def add_adapters(
    x: torch.Tensor, out: torch.Tensor, slots: torch.Tensor, site: AdapterSite, longest: int
) -> None:
    """See kernels/adapters.py. In float32, rounded once with what was there."""
    check_adapters(x, out, slots, site)
    for slot in sorted(set(slots.tolist()) - {NO_ADAPTER}):
        rows = (slots == slot).nonzero().flatten()
        start, given = int(site.starts[slot]), x[rows].float()
        for part in site.parts:
            run = slice(start, start + int(part.lora_ranks[slot]))
            added = given @ part.down[run].float().T @ part.up[run].float()  # [rows, width]
            columns = slice(part.first_column, part.first_column + part.up.shape[1])
            out[rows, columns] = (out[rows, columns].float() + added).to(out.dtype)
