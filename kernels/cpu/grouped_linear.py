"""x @ weight.T + bias by the native library for 4-bit and 8-bit values in groups of inputs.

The weight stays in its bits and is read once; activations are rounded to bytes on the way, with a
scale per row and 32 inputs, twice where the outliers are. `kernels/reference/grouped_linear.py` has
the arithmetic, `native/grouped_matrix.h` the layout.
"""

from __future__ import annotations

import ctypes
from typing import Final

import torch
import torch.nn.functional as F

from kernels.cpu.native_kernels import CODES
from kernels.cpu.packed_linear import PackedLinear
from kernels.cpu.step_records import OperationRecord
from kernels.cpu.team import TEAM
from kernels.door import require_contiguous, require_dtype, require_shape
from kernels.linear import Linear
from kernels.reference.grouped_linear import MOST_INPUTS, SPAN, CentredGroups, centre
from kernels.tape.rows import Rows, VocabularyPart
from kernels.weights import GroupedWeight, Weight

PANEL: Final = 32
_LONG, _POINTER = ctypes.c_int64, ctypes.c_void_p


class GroupedMatrix(ctypes.Structure):
    """`GroupedMatrix` of native/grouped_matrix.h."""

    _fields_ = [
        *((name, _POINTER) for name in ("panels", "minimums", "factors", "bias")),
        *((name, _LONG) for name in ("num_outputs", "num_inputs", "group", "bits", "is_paired")),
    ]


class GroupedRowsRecord(OperationRecord):
    """Rows of the matrix, by the step's token ids; see native/grouped_operations.cpp."""

    function = "splitserve_run_grouped_rows"
    writes = ("out",)
    by_rows = False
    _fields_ = [
        ("matrix", _POINTER),
        *((name, _LONG) for name in ("first_token", "vocab_size", "out")),
    ]


class GroupedLinearRecord(OperationRecord):
    """A product with the matrix; see native/grouped_operations.cpp."""

    function = "splitserve_run_grouped_linear"
    reads = ("x",)
    writes = ("out",)
    _fields_ = [
        ("matrix", _POINTER),
        *((name, _LONG) for name in ("dtype", "out_dtype", "x", "out")),
    ]


def pack_native_linear(
    library: ctypes.CDLL, weight: Weight, bias: torch.Tensor | None = None
) -> Linear:
    """Groups stay groups where the kernel takes them and the CPU runs it; others are plain."""
    runs = hasattr(library, "splitserve_grouped_linear")
    if runs and isinstance(weight, GroupedWeight) and takes(weight):
        return NativeGroupedLinear(library, weight, bias)
    return PackedLinear(library, weight, bias)


class NativeGroupedLinear:
    """A `kernels.linear.Linear` and a `kernels.cpu.native_matrix.NativeMatrix`.

    Raises ValueError for a weight that `takes` refuses.
    """

    def __init__(
        self, library: ctypes.CDLL, weight: GroupedWeight, bias: torch.Tensor | None = None
    ) -> None:
        if not takes(weight):
            raise ValueError(
                f"{weight.shape[1]} inputs in groups of {weight.group} for {weight.dtype}; needed: "
                f"multiples of {SPAN}, {MOST_INPUTS} at most, and float32 or bfloat16"
            )
        self._out_features, self._in_features = weight.shape
        if bias is not None:
            require_shape("bias", bias, (self._out_features,))
        self._library, self._dtype = library, weight.dtype
        groups = centre(weight)
        self._panels = pack_panels(groups)
        self._minimums = pack_minimums(groups)
        self._factors = _padded(groups.factors).contiguous()
        self._bias = None if bias is None else bias.float().contiguous()
        self._matrix = GroupedMatrix(
            panels=self._panels.data_ptr(),
            minimums=None if self._minimums is None else self._minimums.data_ptr(),
            factors=self._factors.data_ptr(),
            bias=None if self._bias is None else self._bias.data_ptr(),
            num_outputs=self._out_features,
            num_inputs=self._in_features,
            group=groups.group,
            bits=groups.bits,
            is_paired=groups.is_paired,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(out_features, in_features)."""
        return self._out_features, self._in_features

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        held = (self._panels, self._minimums, self._factors, self._bias)
        return sum(tensor.nbytes for tensor in held if tensor is not None)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [num_rows, in_features] -> [num_rows, out_features]."""
        return self._multiply(x, x.dtype)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """As a call, but float32 out: the sums are not rounded."""
        return self._multiply(x, torch.float32)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """ids int64 [n] -> float32 [n, in_features]."""
        require_dtype("ids", ids, torch.int64)
        require_contiguous("ids", ids)
        out = torch.empty((ids.shape[0], self._in_features))
        self._library.splitserve_grouped_rows(
            ctypes.byref(self._matrix),
            ids.data_ptr(),
            ids.shape[0],
            out.data_ptr(),
            TEAM.num_threads,
        )
        return out

    def product_record(self, x: Rows, out: Rows) -> GroupedLinearRecord:
        """See NativeMatrix."""
        return GroupedLinearRecord(
            matrix=ctypes.addressof(self._matrix),
            dtype=CODES[x.dtype],
            out_dtype=CODES[out.dtype],
            x=x.place,
            out=out.place,
        )

    def rows_record(self, out: Rows, part: VocabularyPart | None = None) -> GroupedRowsRecord:
        """See NativeMatrix."""
        return GroupedRowsRecord(
            matrix=ctypes.addressof(self._matrix),
            first_token=0 if part is None else part.first_token,
            vocab_size=self._out_features if part is None else part.vocab_size,
            out=out.place,
        )

    def _multiply(self, x: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
        num_rows = x.shape[0]
        require_shape("x", x, (num_rows, self._in_features))
        require_dtype("x", x, self._dtype)
        require_contiguous("x", x)
        out = torch.empty((num_rows, self._out_features), dtype=out_dtype)
        self._library.splitserve_grouped_linear(
            CODES[x.dtype],
            CODES[out_dtype],
            x.data_ptr(),
            num_rows,
            ctypes.byref(self._matrix),
            out.data_ptr(),
            self._out_features,
            TEAM.num_threads,
        )
        return out


def takes(weight: GroupedWeight) -> bool:
    """Whether the kernel has a layout for this weight."""
    is_aligned = weight.group % SPAN == 0 and weight.shape[1] <= MOST_INPUTS
    return is_aligned and weight.dtype in CODES


def pack_panels(groups: CentredGroups) -> torch.Tensor:
    """uint8 [ceil(out / 32), num_groups, bytes of 32 scales or pairs and their values]."""
    scales = groups.scales[..., None]
    if groups.minimums is not None and groups.is_paired:
        scales = torch.stack((groups.scales, groups.minimums), dim=-1)
    scales = _padded(scales).view(-1, PANEL, groups.num_groups, scales.shape[-1]).transpose(1, 2)
    steps = _padded(groups.values).view(-1, PANEL, groups.num_groups, groups.group // 4, 4)
    values = steps.permute(0, 2, 3, 1, 4)  # [panels, groups, steps, 32 outputs, 4 inputs]
    if groups.bits == 4:
        values = values[..., : PANEL // 2, :] | values[..., PANEL // 2 :, :] << 4
    scale_bytes = scales.flatten(2).contiguous().view(torch.uint8)
    return torch.cat((scale_bytes, values.flatten(2)), dim=-1)


def pack_minimums(groups: CentredGroups) -> torch.Tensor | None:
    """bfloat16 [ceil(out / 32), pairs, 32, 2]; None where panels have them or all are zero."""
    if groups.minimums is None or groups.is_paired:
        return None
    paired = F.pad(groups.minimums, (0, groups.num_groups % 2))
    panels = _padded(paired).view(-1, PANEL, paired.shape[1] // 2, 2)
    return panels.transpose(1, 2).contiguous()


def _padded(tensor: torch.Tensor) -> torch.Tensor:
    """[out, ...] with zeros up to full panels."""
    missing = -tensor.shape[0] % PANEL
    return F.pad(tensor, (0, 0) * (tensor.dim() - 1) + (0, missing)) if missing else tensor
