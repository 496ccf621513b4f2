"""x @ weight.T + bias, by torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernels.door import require, require_dtype, require_shape
from kernels.weights import Weight, plain


class TorchLinear:
    """A `kernels.linear.Linear` that keeps a plain weight as it is, and dequantizes others."""

    def __init__(self, weight: Weight, bias: torch.Tensor | None = None) -> None:
        weight = plain(weight)
        require(weight.dim() == 2, f"weight has {weight.dim()} dimensions; needed: 2")
        if bias is not None:
            require_shape("bias", bias, (weight.shape[0],))
            require_dtype("bias", bias, weight.dtype)
        self._weight = weight.contiguous()
        self._bias = bias

    @property
    def shape(self) -> tuple[int, int]:
        """(out_features, in_features)."""
        out_features, in_features = self._weight.shape
        return out_features, in_features

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return self._weight.nbytes + (0 if self._bias is None else self._bias.nbytes)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [num_rows, in_features] -> [num_rows, out_features]."""
        return F.linear(x, self._weight, self._bias)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """As a call, but float32 out."""
        return self(x).float()

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """ids int64 [n] -> float32 [n, in_features]."""
        return self._weight[ids].float()
