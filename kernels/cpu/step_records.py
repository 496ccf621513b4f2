"""The records of `native/step_program.h` and `.cpp`, field by field.

Names of fields and their meaning are those of the kernels; `dtype` is a code of `native_kernels`,
a place is an index into the workspace of the program.
"""

from __future__ import annotations

import ctypes
from typing import ClassVar, Final

LOGITS: Final = 0
"""The place of the logits: a tensor of the step's own, not a part of the workspace."""

_LONG, _FLOAT, _POINTER = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p


def _longs(*names: str) -> list[tuple[str, type]]:
    return [(name, _LONG) for name in names]


def _pointers(*names: str) -> list[tuple[str, type]]:
    return [(name, _POINTER) for name in names]


class OperationRecord(ctypes.Structure):
    """One operation of a program: what the function that is named by `function` reads."""

    function: ClassVar[str]
    reads: ClassVar[tuple[str, ...]] = ()
    """Fields of places that are read; of one that is changed too."""
    writes: ClassVar[tuple[str, ...]] = ()
    """Fields of places whose rows are written, all of each row."""
    by_rows: ClassVar[bool] = True
    """Whether a row's result depends on that row alone."""


class PanelRowsRecord(OperationRecord):
    """Rows of a packed matrix, by the step's token ids: those of the tokens from `first_token` on;
    zeros for the others of the vocabulary."""

    function = "splitserve_run_panel_rows"
    writes = ("out",)
    by_rows = False
    _fields_ = [
        *_pointers("panels"),
        *_longs("dtype", "num_steps", "num_rows", "first_token", "vocab_size", "out"),
    ]


class RmsNormRecord(OperationRecord):
    """residual += branch, if there is one; out = its norm."""

    function = "splitserve_run_rms_norm"
    reads = ("residual", "branch")
    writes = ("residual", "out")
    _fields_ = [
        *_pointers("weight"),
        *_longs("dtype", "residual", "branch", "has_branch", "hidden", "out"),
        ("eps", _FLOAT),
    ]


class PanelLinearRecord(OperationRecord):
    """A product with a packed matrix."""

    function = "splitserve_run_panel_linear"
    reads = ("x",)
    writes = ("out",)
    _fields_ = [
        *_pointers("panels", "bias"),
        *_longs("dtype", "out_dtype", "x", "num_steps", "num_outputs", "out"),
    ]


class AddAdaptersRecord(OperationRecord):
    """Adds to each row what its adapter makes of the row of `x`; see native/add_adapters.cpp."""

    function = "splitserve_run_add_adapters"
    reads = ("x", "out")
    writes = ("out",)
    _fields_ = [
        *_pointers("parts", "starts"),
        *_longs("num_parts", "dtype", "x", "in_width", "out", "out_width", "is_wanted"),
    ]


class RopeWriteKvRecord(OperationRecord):
    """Rotates Q in place, writes K and V to a layer of the pool."""

    function = "splitserve_run_rope_write_kv"
    reads = ("qkv",)
    writes = ("qkv",)
    _fields_ = [
        *_pointers("cos_sin"),
        *_longs("dtype", "qkv", "layer", "num_heads", "num_kv_heads", "head_dim"),
    ]


class PagedAttentionRecord(OperationRecord):
    """Attention of the Q part of `qkv`."""

    function = "splitserve_run_paged_attention"
    reads = ("qkv",)
    writes = ("out",)
    by_rows = False
    _fields_ = [
        *_longs("dtype", "qkv", "layer", "num_heads", "num_kv_heads", "head_dim", "window", "out"),
        ("scale", _FLOAT),
    ]


class GatedMulRecord(OperationRecord):
    """The gate of a feed-forward; `activation` is a code of `native_kernels`."""

    function = "splitserve_run_gated_mul"
    reads = ("gate_up",)
    writes = ("out",)
    _fields_ = _longs("activation", "dtype", "gate_up", "inner", "out")


class HeadNormRecord(OperationRecord):
    """Norms each head of Q and K in place."""

    function = "splitserve_run_head_norm"
    reads = ("qkv",)
    writes = ("qkv",)
    _fields_ = [
        *_pointers("query_weight", "key_weight"),
        *_longs("dtype", "qkv", "num_heads", "num_kv_heads", "head_dim"),
        ("eps", _FLOAT),
    ]


class ScaleRowsRecord(OperationRecord):
    """Multiplies float32 rows in place."""

    function = "splitserve_run_scale_rows"
    reads = ("rows",)
    writes = ("rows",)
    _fields_ = [*_longs("rows", "width"), ("scale", _FLOAT)]


class ZeroRowsRecord(OperationRecord):
    """Sets rows to zero."""

    function = "splitserve_run_zero_rows"
    writes = ("rows",)
    _fields_ = _longs("rows", "row_bytes")


class AllReduceRecord(OperationRecord):
    """out = the sum of `rows` over the ranks; `type` is a code of the sum's. Where it fails the
    program ends."""

    function = "splitserve_run_all_reduce"
    reads = ("rows",)
    writes = ("out",)
    by_rows = False
    _fields_ = [
        *_pointers("add", "context"),
        *_longs("type", "rows", "out", "width"),
    ]


class ShowRowsRecord(OperationRecord):
    """From here on `place` lies where the other ranks look for the rows of the next collective: in
    a tray; or, of too many rows, at the place `instead`."""

    function = "splitserve_run_show_rows"
    by_rows = False
    _fields_ = [*_pointers("tray", "context"), *_longs("place", "row_bytes", "instead")]


class GatherLogitsRecord(OperationRecord):
    """The logits of all ranks, side by side, to the one that wants them: the root, whose own lie
    there already. Where it fails the program ends."""

    function = "splitserve_run_gather_logits"
    by_rows = False
    _fields_ = [*_pointers("gather", "context"), *_longs("root", "is_root", "row_bytes")]


class SelectRowsRecord(OperationRecord):
    """Copies the rows whose logits are wanted."""

    function = "splitserve_run_select_rows"
    reads = ("source",)
    writes = ("target",)
    by_rows = False
    _fields_ = [*_longs("source", "target", "row_bytes")]


class LeaveRowsRecord(OperationRecord):
    """Copies rows to a place that is read once the program is done: no stretch's own."""

    function = "splitserve_run_leave_rows"
    reads = ("source",)
    writes = ("target",)
    by_rows = False
    _fields_ = [*_longs("source", "target", "row_bytes")]


class KeepWantedRecord(OperationRecord):
    """From here on only those rows are computed."""

    function = "splitserve_run_keep_wanted"
    by_rows = False
    _fields_ = []


class OperationEntry(ctypes.Structure):
    """A line of the program."""

    _fields_ = [*_pointers("operate", "record"), *_longs("by_rows")]


class ActivationsEntry(ctypes.Structure):
    """A place."""

    _fields_ = _longs("row_bytes", "is_local", "is_lent")


class ProgramRecord(ctypes.Structure):
    """The program."""

    _fields_ = [
        *_pointers("operations"),
        *_longs("num_operations"),
        *_pointers("places"),
        *_longs("num_places"),
    ]


class StepRecord(ctypes.Structure):
    """What changes from step to step."""

    _fields_ = [
        *_longs("num_tokens", "num_seqs", "num_logits", "max_blocks"),
        *_pointers("token_ids", "positions", "slots", "logit_rows"),
        *_pointers("query_starts", "context_lens", "block_tables", "adapters", "kv"),
        *_longs("kv_layer_stride", "kv_block_stride", "kv_block_size", "kv_dtype"),
        *_pointers("workspace"),
        *_longs("capacity_rows"),
        *_pointers("logits"),
        *_longs("logits_stride", "num_threads", "num_unknown_tokens", "sum_outcome"),
    ]
