"""The interface of a matrix in the layout that a device multiplies fastest."""

from __future__ import annotations

from typing import Protocol

import torch


class Linear(Protocol):
    """A weight [out_features, in_features] with an optional bias, owned and packed."""

    @property
    def shape(self) -> tuple[int, int]:
        """(out_features, in_features)."""

    @property
    def num_bytes(self) -> int:
        """Memory held."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [num_rows, in_features] -> [num_rows, out_features], dtype of x."""

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """As a call, but float32 out."""

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows of the weight: ids int64 [n] -> float32 [n, in_features]; a tied embedding."""
