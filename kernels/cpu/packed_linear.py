"""x @ weight.T + bias by the native library, the weight in panels of 32 outputs.

    weight [out, in]  ->  words [out / 32, in / values_per_word, 32]

One 32-bit word holds one float32 value, or two neighbouring bfloat16 values of a row. One layout
serves one row (a stream over the panels) and hundreds (an outer product in registers).
"""

from __future__ import annotations

import ctypes

import torch
import torch.nn.functional as F

from kernels.cpu.native_kernels import CODES
from kernels.cpu.step_records import PanelLinearRecord, PanelRowsRecord
from kernels.cpu.team import TEAM
from kernels.door import require, require_contiguous, require_dtype, require_shape
from kernels.tape.recording import NoNativeForm
from kernels.tape.rows import Rows, VocabularyPart
from kernels.weights import Weight, plain

PANEL = 32


class PackedLinear:
    """A `kernels.linear.Linear` and a `kernels.cpu.native_matrix.NativeMatrix`."""

    def __init__(
        self, library: ctypes.CDLL, weight: Weight, bias: torch.Tensor | None = None
    ) -> None:
        weight = plain(weight)
        require(weight.dim() == 2, f"weight has {weight.dim()} dimensions; needed: 2")
        require_dtype("weight", weight, *CODES)
        self._out_features, self._in_features = weight.shape
        if bias is not None:
            require_shape("bias", bias, (self._out_features,))
        self._library = library
        self._dtype = weight.dtype
        self._code = CODES[weight.dtype]
        self._per_word = 4 // weight.dtype.itemsize
        self._panels = pack(weight)
        self._bias = None if bias is None else bias.float().contiguous()

    @property
    def shape(self) -> tuple[int, int]:
        """(out_features, in_features)."""
        return self._out_features, self._in_features

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return self._panels.nbytes + (0 if self._bias is None else self._bias.nbytes)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [num_rows, in_features] -> [num_rows, out_features]."""
        return self._multiply(x, x.dtype)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """As a call, but float32 out: the sums are not rounded."""
        return self._multiply(x, torch.float32)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """ids int64 [n] -> float32 [n, in_features]."""
        words = self._panels[ids // PANEL, :, ids % PANEL]
        return words.view(self._dtype)[:, : self._in_features].float()

    def product_record(self, x: Rows, out: Rows) -> PanelLinearRecord:
        """See NativeMatrix."""
        self._require_whole_words()
        return PanelLinearRecord(
            panels=self._panels.data_ptr(),
            bias=None if self._bias is None else self._bias.data_ptr(),
            dtype=self._code,
            out_dtype=CODES[out.dtype],
            x=x.place,
            num_steps=self._panels.shape[1],
            num_outputs=self._out_features,
            out=out.place,
        )

    def rows_record(self, out: Rows, part: VocabularyPart | None = None) -> PanelRowsRecord:
        """See NativeMatrix."""
        self._require_whole_words()
        return PanelRowsRecord(
            panels=self._panels.data_ptr(),
            dtype=self._code,
            num_steps=self._panels.shape[1],
            num_rows=self._out_features,
            first_token=0 if part is None else part.first_token,
            vocab_size=self._out_features if part is None else part.vocab_size,
            out=out.place,
        )

    def _require_whole_words(self) -> None:
        if self._in_features % self._per_word:
            raise NoNativeForm(f"{self._in_features} inputs of {self._dtype}")

    def _multiply(self, x: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
        num_rows = x.shape[0]
        require_shape("x", x, (num_rows, self._in_features))
        require_dtype("x", x, self._dtype)
        require_contiguous("x", x)
        if self._in_features % self._per_word:
            x = F.pad(x, (0, 1))
        out = torch.empty((num_rows, self._out_features), dtype=out_dtype)
        num_words = self._panels.shape[1]
        self._library.splitserve_linear(
            self._code,
            CODES[out_dtype],
            x.data_ptr(),
            num_rows,
            num_words,
            num_words,
            self._panels.data_ptr(),
            self._out_features,
            None if self._bias is None else self._bias.data_ptr(),
            out.data_ptr(),
            self._out_features,
            TEAM.num_threads,
        )
        return out


def pack(weight: torch.Tensor) -> torch.Tensor:
    """[out, in] -> int32 [ceil(out / 32), in / values_per_word, 32]; what is missing is zero."""
    out_features, in_features = weight.shape
    per_word = 4 // weight.dtype.itemsize
    missing = (0, -in_features % per_word, 0, -out_features % PANEL)
    words = (F.pad(weight, missing) if any(missing) else weight.contiguous()).view(torch.int32)
    return words.view(-1, PANEL, words.shape[1]).transpose(1, 2).contiguous()
