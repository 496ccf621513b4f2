"""x[:, h] @ weight[h].T for every head, by torch."""

from __future__ import annotations

import torch

from kernels.door import require, require_dtype, require_shape


class TorchHeadLinear:
    """A `kernels.latent.HeadLinear` on any device."""

    def __init__(self, weight: torch.Tensor) -> None:
        require(weight.dim() == 3, f"weight has {weight.dim()} dimensions; needed: 3")
        self._weight = weight.contiguous()

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return self._weight.nbytes

    def __call__(self, x: torch.Tensor, out: torch.Tensor) -> None:
        """See HeadLinear."""
        check_head_linear(x, out, tuple(self._weight.shape))
        require_dtype("x", x, self._weight.dtype)
        out.copy_(torch.bmm(x.transpose(0, 1), self._weight.transpose(1, 2)).transpose(0, 1))


def check_head_linear(x: torch.Tensor, out: torch.Tensor, weight: tuple[int, ...]) -> None:
    """The door of every HeadLinear; `weight` is its shape."""
    num_heads, out_features, in_features = weight
    require_shape("x", x, (x.shape[0], num_heads, in_features))
    require_shape("out", out, (x.shape[0], num_heads, out_features))
    require_dtype("out", out, x.dtype)
    require(x.stride(2) == out.stride(2) == 1, "x and out need their last dimension contiguous")
