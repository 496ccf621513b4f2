"""Numbers between host and device without waiting: through page-locked memory.

Torch gives page-locked memory out again only when the copies that touched it are done, so that
every transfer may have fresh memory, and none has to know which steps are still under way.
"""

from __future__ import annotations

import torch


def send(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy of `values`, on the host, for the current stream's work; they may change at once."""
    return staged(values, device).to(device, non_blocking=True)


def staged(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """What to copy to `device` in place of `values`, so that the host need not wait."""
    return values.contiguous().pin_memory() if device.type == "cuda" else values


class SampledTokens:
    """A Flight: a launched step's tokens, on their way to the host while the device goes on.

    Maxima are float32 [num_rows] and ids int64 [num_rows], as `draw_on_device` gives them; they are
    copied behind the current stream's work so far.
    """

    def __init__(self, maxima: torch.Tensor, ids: torch.Tensor) -> None:
        found = torch.stack((maxima.isfinite().long(), ids))  # [2, num_rows]
        self._host = found
        self._arrival: torch.cuda.Event | None = None
        if found.is_cuda:
            self._host = torch.empty_like(found, device="cpu", pin_memory=True)
            self._host.copy_(found, non_blocking=True)
            self._arrival = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrival.record()

    def tokens(self) -> list[int | None]:
        """See Flight."""
        if self._arrival is not None:
            self._arrival.synchronize()
        is_finite, ids = self._host.tolist()
        return [i if finite else None for finite, i in zip(is_finite, ids, strict=True)]
