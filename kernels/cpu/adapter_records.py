"""The records of `native/add_adapters.cpp`, and that kernel as a function of tensors."""

from __future__ import annotations

import ctypes
from typing import Final

import torch

from kernels.adapters import AdapterSite, check_adapters
from kernels.cpu.team import TEAM
from kernels.reference.add_adapters import add_adapters as reference_add

_WORD_BYTES: Final = 4
_CODES: Final = {torch.float32: 0, torch.bfloat16: 1}
_LONG, _POINTER = ctypes.c_int64, ctypes.c_void_p


class AdapterPartRecord(ctypes.Structure):
    """`AdapterPart` there."""

    _fields_ = [
        *((name, _POINTER) for name in ("down", "up", "ranks")),
        *((name, _LONG) for name in ("first_column", "width")),
    ]


def adapter_parts(site: AdapterSite) -> ctypes.Array[AdapterPartRecord]:
    """Of as much use as the site lives."""
    parts = [
        AdapterPartRecord(
            part.down.data_ptr(),
            part.up.data_ptr(),
            part.lora_ranks.data_ptr(),
            part.first_column,
            part.up.shape[1],
        )
        for part in site.parts
    ]
    return (AdapterPartRecord * len(parts))(*parts)


class NativeAdapters:
    """Bound to the library; each call runs on the team of `kernels/cpu/team.py`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._run = library.splitserve_add_adapters

    def add_adapters(
        self,
        x: torch.Tensor,
        out: torch.Tensor,
        slots: torch.Tensor,
        site: AdapterSite,
        longest: int,
    ) -> None:
        """See kernels/adapters.py."""
        if x.shape[-1] * x.itemsize % _WORD_BYTES:  # rows of whole words are what it multiplies
            reference_add(x, out, slots, site, longest)
            return
        check_adapters(x, out, slots, site)
        slots, parts = slots.contiguous(), adapter_parts(site)
        self._run(
            _CODES[out.dtype],
            x.data_ptr(),
            x.shape[1],
            out.data_ptr(),
            out.shape[1],
            slots.data_ptr(),
            None,
            len(slots),
            site.starts.data_ptr(),
            ctypes.addressof(parts),
            len(site.parts),
            TEAM.num_threads,
        )
