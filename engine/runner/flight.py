"""A launched step's tokens, on their way to the host while the device goes on."""

from __future__ import annotations

import torch

from engine.memory.page_locked import Parcel


class SampledFlight:
    """A Flight: maxima float32 [num_rows] and ids int64 [num_rows], as `draw_on_device` gives."""

    def __init__(self, maxima: torch.Tensor, ids: torch.Tensor) -> None:
        self._found = Parcel(torch.stack((maxima.isfinite().long(), ids)))  # [2, num_rows]

    def tokens(self) -> list[int | None]:
        """See Flight."""
        is_finite, ids = self._found.open().tolist()
        return [i if finite else None for finite, i in zip(is_finite, ids, strict=True)]
