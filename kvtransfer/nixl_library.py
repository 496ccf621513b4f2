"""Loading NIXL: one of its wheels, with the environment that UCX needs.

The variables are set while the library is loaded and while an agent is made, and then put back: a
child process must not inherit a log file that only this process can open. What the user has set
stays as it is.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType

import torch

from cluster.errors import ConfigError
from kvtransfer.hardware import has_nvidia_card, has_rdma_device
from kvtransfer.ucx_log import UcxLog

WHEELS = ("nixl_cu13", "nixl_cu12", "nixl")


OUR_LOG_FILES = "/proc/self/fd/"
_environment = threading.RLock()


@functools.cache
def ucx_log() -> UcxLog | None:
    """The process's one log of UCX; None when the user has directed it elsewhere.

    A file of ours in the environment was inherited: this process was started while its parent was
    loading the library. It means nothing here.
    """
    file = os.environ.get("UCX_LOG_FILE", OUR_LOG_FILES)
    return UcxLog() if file.startswith(OUR_LOG_FILES) else None


def ucx_settings() -> dict[str, str]:
    """UCX and NIXL settings to be added to the user's."""
    settings = machine_settings(
        has_cuda=torch.cuda.is_available(), has_card=has_nvidia_card(), has_rdma=has_rdma_device()
    )
    settings = {name: value for name, value in settings.items() if name not in os.environ}
    log = ucx_log()
    return settings if log is None else settings | log.environment()


def machine_settings(*, has_cuda: bool, has_card: bool, has_rdma: bool = False) -> dict[str, str]:
    """Settings for a machine where torch has CUDA, or not, the PCI bus an NVIDIA card, or not, and
    the network cards RDMA, or not.

    A card without CUDA (torch's CPU build, an old driver, no CUDA_VISIBLE_DEVICES) leaves the
    choice of transports to UCX: NIXL 1.5.1 refuses one without CUDA as soon as it finds a card.
    """
    settings = {
        "NIXL_LOG_LEVEL": "FATAL",  # errors reach us as exceptions
        "UCX_RCACHE_MAX_UNRELEASED": "1024",  # unbounded, the registration cache leaks
    }
    if has_cuda:
        # Without NVLink, UCX else emulates reads over TCP: nixl 1754, 0.3 instead of 200 GB/s.
        settings["UCX_CUDA_IPC_ENABLE_GET_ZCOPY"] = "y"
    elif not has_card and not has_rdma:
        settings["UCX_TLS"] = "tcp,self,sm"  # do not probe for GPUs and RDMA devices
    return settings


def check_allocator(memory: str, environment: Mapping[str, str]) -> None:
    """Raises ConfigError for memory of a GPU that torch maps piece by piece.

    Such memory cannot be shared between processes: nixl 1754, transfers 600 times as long.
    """
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        if memory == "VRAM" and "expandable_segments:true" in environment.get(name, "").lower():
            raise ConfigError(
                f"{name} is {environment[name]!r}: blocks in expandable segments can be read by "
                "other processes only over detours; remove expandable_segments from it",
                param="kv_transport",
            )


@contextmanager
def ucx_environment() -> Iterator[None]:
    """The settings are in the environment within; one thread at a time."""
    with _environment:
        added = ucx_settings()
        os.environ.update(added)
        try:
            yield
        finally:
            for name in added:
                os.environ.pop(name, None)


@functools.cache
def nixl_bindings() -> ModuleType:
    """The wheel for this machine's CUDA. Raises ConfigError when none can be loaded.

    The bindings rather than the package's agent class, because only they can tell an agent how
    often its progress thread wakes up (see transfer_agent.py).
    """
    order = sorted(WHEELS, key=lambda wheel: wheel.removeprefix("nixl_cu") != _cuda_major())
    raise_exceptions = logging.raiseExceptions
    failures = []
    with ucx_environment():
        for wheel in order:
            try:
                return importlib.import_module(f"{wheel}._bindings")
            except ImportError as error:
                failures.append(f"{wheel}: {error}")
            finally:
                logging.raiseExceptions = raise_exceptions  # the package turns it off for all
    raise ConfigError(
        f"NIXL cannot be loaded ({'; '.join(failures)}); install nixl-cu13 (nixl-cu12 for CUDA "
        "12), or use --kv-transport loopback in one process",
        param="kv_transport",
    )


@functools.cache
def nixl_errors() -> tuple[type[Exception], ...]:
    """Every exception class of the library."""
    names = [name for name in vars(nixl_bindings()) if name.endswith("Error")]
    return tuple(getattr(nixl_bindings(), name) for name in names)


def _cuda_major() -> str:
    return (torch.version.cuda or "13").partition(".")[0]
