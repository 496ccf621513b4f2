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


class Parcel:
    """A copy of a tensor, on its way to the host behind the current stream's work so far."""

    def __init__(self, values: torch.Tensor) -> None:
        is_remote = values.is_cuda
        self._host = torch.empty_like(values, device="cpu", pin_memory=is_remote)
        self._host.copy_(values, non_blocking=True)
        self._arrival: torch.cuda.Event | None = None
        if is_remote:
            self._arrival = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrival.record()

    def open(self) -> torch.Tensor:
        """Waits until it is there; it is on the host."""
        if self._arrival is not None:
            self._arrival.synchronize()
        return self._host
