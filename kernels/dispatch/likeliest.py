"""The likeliest token of each row as Python's numbers, on whatever device the logits are.

`kernels/reference/row_argmax.py` is what it computes. On a CPU it is one native call: torch's five,
whose code a decode step has driven out of the caches, took 0.36 ms of a step of one sequence.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import torch

from kernels.cpu.native_library import native_library
from kernels.cpu.team import TEAM
from kernels.reference.mask_logits import check_words
from kernels.reference.mask_logits import mask_logits as reference_mask
from kernels.reference.row_argmax import row_argmax as reference_argmax
from kernels.token_mask import TokenMask

Masks = Sequence[TokenMask | None]


def likeliest(
    logits: torch.Tensor, rows: Sequence[int], masks: Masks | None = None
) -> list[int | None]:
    """logits float32 [num_logits, vocab_size] -> for each of `rows` the first of its maxima.

    `masks`: for each of `rows` the tokens that count, or None.
    None: the row's maximum is not finite. Raises IndexError for a row that is not there,
    ValueError for masks that are not as many or as long as they have to be.
    """
    if not rows:
        return []
    num_logits, vocab_size = logits.shape
    if not 0 <= min(rows) <= max(rows) < num_logits:
        raise IndexError(f"rows {min(rows)} to {max(rows)} of {num_logits}")
    if masks is not None and len(masks) != len(rows):
        raise ValueError(f"{len(rows)} rows and {len(masks)} masks; needed: as many")
    library = native_library() if logits.is_cpu and logits.is_contiguous() else None
    if library is None or logits.dtype is not torch.float32:
        return _by_torch(logits, rows, masks)
    if masks is not None:
        check_words(masks, vocab_size)
    return _natively(library, logits.data_ptr(), vocab_size, rows, masks)


def _natively(
    library: ctypes.CDLL, address: int, vocab_size: int, rows: Sequence[int], masks: Masks | None
) -> list[int | None]:
    num_rows = len(rows)
    places = None
    if masks is not None:
        addresses = [None if mask is None else mask.address for mask in masks]
        places = (ctypes.c_void_p * num_rows)(*addresses)
    wanted = (ctypes.c_int64 * num_rows)(*rows)
    values, ids = (ctypes.c_float * num_rows)(), (ctypes.c_int64 * num_rows)()
    library.splitserve_row_argmax(
        address,
        vocab_size,
        vocab_size,
        ctypes.addressof(wanted),
        num_rows,
        places if places is None else ctypes.addressof(places),
        ctypes.addressof(values),
        ctypes.addressof(ids),
        TEAM.num_threads,
    )
    return [i if math.isfinite(value) else None for i, value in zip(ids, values, strict=True)]


def _by_torch(logits: torch.Tensor, rows: Sequence[int], masks: Masks | None) -> list[int | None]:
    chosen = logits[list(rows)]
    masked = [(i, mask) for i, mask in enumerate(masks or ()) if mask is not None]
    if masked:
        reference_mask(chosen, [i for i, _ in masked], [mask for _, mask in masked])
    values, ids = reference_argmax(chosen)
    is_finite = values.isfinite().tolist()
    return [i if finite else None for i, finite in zip(ids.tolist(), is_finite, strict=True)]
