"""Reads a checkpoint's tensors for a replica: in its weight format, its dtype, on its device."""

from __future__ import annotations

import torch

from engine.contract.weight_format import WeightFormat
from engine.model.weights.checkpoint import Checkpoint
from engine.model.weights.requantize import converted, of_ends
from kernels.weight_rows import concat_rows, moved
from kernels.weights import Weight


class WeightReader:
    """One per load. Every call reads; nothing is kept.

    Norms, biases and the gates of routers are read by `plain`: they are small, and what they decide
    is sensitive.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        form: WeightFormat,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._checkpoint = checkpoint
        self._form = form
        self._dtype = dtype
        self._device = device

    def plain(self, name: str) -> torch.Tensor:
        """Any tensor, in the replica's dtype."""
        return self._checkpoint.read(name).to(device=self._device, dtype=self._dtype)

    def exact(self, name: str) -> torch.Tensor:
        """Any tensor in float32: a norm's weight, a router's bias."""
        return self._checkpoint.read(name).to(self._device).float()

    def matrix(self, *names: str) -> Weight:
        """A layer's matrix [out, in]; several names are put together by rows."""
        parts = [self._read(name, self._form) for name in names]
        return moved(concat_rows(parts), self._device, self._dtype)

    def end(self, name: str) -> Weight:
        """The embedding or the LM head [vocab, hidden]."""
        return moved(self._read(name, of_ends(self._form)), self._device, self._dtype)

    def _read(self, name: str, form: WeightFormat) -> Weight:
        return converted(self._checkpoint.read_weight(name), form, self._dtype)
