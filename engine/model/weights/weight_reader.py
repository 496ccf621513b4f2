"""Reads a rank's part of a checkpoint's tensors: in its weight format, its dtype, on its device."""

from __future__ import annotations

import torch

from cluster.models.model_split import ModelSplit
from cluster.models.tensor_part import TensorPart
from engine.contract.weight_format import WeightFormat
from engine.model.weights.checkpoint import Checkpoint
from engine.model.weights.requantize import converted, of_ends
from kernels.weight_parts import with_height
from kernels.weight_rows import concat_rows, moved
from kernels.weights import Weight


class WeightReader:
    """Every call reads; nothing is kept, and nothing of another rank's is read.

    Norms, biases and the gates of routers are read by `plain`: they are small, and what they decide
    is sensitive.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        form: WeightFormat,
        split: ModelSplit,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.split = split
        self._checkpoint = checkpoint
        self._form = form
        self._dtype = dtype
        self._device = device

    def of(self, split: ModelSplit) -> WeightReader:
        """Of the same checkpoint another part."""
        return WeightReader(
            self._checkpoint, self._form, split, dtype=self._dtype, device=self._device
        )

    def plain(self, name: str) -> torch.Tensor:
        """Any tensor, in the replica's dtype."""
        return self._values(name).to(device=self._device, dtype=self._dtype)

    def exact(self, name: str) -> torch.Tensor:
        """Any tensor in float32: a norm's weight, a router's bias."""
        return self._values(name).to(self._device).float()

    def biases(self, *names: str) -> torch.Tensor | None:
        """Put together. None: another rank adds them to the sum."""
        parts = [self.split.part(name) for name in names]
        own = [
            self._checkpoint.read(name, part)
            for name, part in zip(names, parts, strict=True)
            if part is not None
        ]
        return torch.cat(own).to(device=self._device, dtype=self._dtype) if own else None

    def matrix(self, *names: str) -> Weight:
        """A layer's matrix [out, in]; several names are put together by rows."""
        parts = [self._read(name, self._form) for name in names]
        return moved(concat_rows(parts), self._device, self._dtype)

    def end(self, name: str) -> Weight:
        """The embedding or the LM head [vocab, hidden]; of a rank, [vocab_height, hidden]."""
        weight = with_height(self._read(name, of_ends(self._form)), self.split.vocab_height)
        return moved(weight, self._device, self._dtype)

    def _values(self, name: str) -> torch.Tensor:
        return self._checkpoint.read(name, self._part(name))

    def _read(self, name: str, form: WeightFormat) -> Weight:
        weight = self._checkpoint.read_weight(name, self._part(name))
        return converted(weight, form, self._dtype)

    def _part(self, name: str) -> TensorPart:
        part = self.split.part(name)
        assert part is not None, f"{name} is another rank's"
        return part
