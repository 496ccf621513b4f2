"""The device that an engine computes on, and no other in its place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch

from cluster.errors import ConfigError
from cluster.supervisor.devices import THIS_HOST, NvidiaHost, visible_gpus, why_unusable


def resolve_device(name: str, host: NvidiaHost = THIS_HOST) -> torch.device:
    """What "auto" means here: a GPU where there is one.

    Raises ConfigError for a device that is not there, and for a GPU that torch cannot use: to
    serve on the CPU beside it, many times slower, is the operator's choice and not ours.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device is {name!r}; choose auto, cpu or cuda", param="device")
    if name == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda")
    if visible_gpus(os.environ, host):
        found = why_unusable(torch.version.cuda, host)
        raise ConfigError(
            f"an NVIDIA GPU is here that cannot be used: {found.cause}; {found.remedy}, or go on "
            "without it: --device cpu",
            param="device",
        )
    if name == "cuda":
        raise ConfigError("device is cuda, but this machine has none; choose cpu", param="device")
    return torch.device("cpu")


def wants_gpu(name: str, host: NvidiaHost = THIS_HOST) -> bool:
    """Whether `resolve_device` takes a GPU, or refuses one that it cannot use: said without CUDA,
    which reads CUDA_VISIBLE_DEVICES once and for all when it is first asked."""
    return name == "cuda" or (name == "auto" and bool(visible_gpus(os.environ, host)))


def waiter_of(device: torch.device) -> Callable[[], None]:
    """Waits until the device has done what was asked of it so far; at once on a CPU."""
    if device.type == "cpu":
        return at_once
    return lambda: torch.cuda.current_stream(device).synchronize()


def at_once() -> None:
    """There is nothing to wait for."""


def keep_triton_kernels(folder: Path) -> None:
    """Has Triton keep what it compiles in `folder`, unless the user has chosen another.

    Raises ConfigError where the folder cannot be had: on a GPU nothing runs without it.
    """
    chosen = Path(os.environ.setdefault("TRITON_CACHE_DIR", str(folder)))
    try:
        chosen.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"no folder for the GPU's compiled kernels: {chosen} cannot be made ({error}); set "
            "SPLITSERVE_HOME to a folder that can be written"
        ) from error
