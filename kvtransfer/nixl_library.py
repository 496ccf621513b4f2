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
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import torch

from cluster.errors import ConfigError
from kvtransfer.ucx_log import UcxLog

WHEELS = ("nixl_cu12", "nixl_cu13", "nixl")


@functools.cache
def ucx_log() -> UcxLog:
    """The process's one log of UCX."""
    return UcxLog()


def ucx_defaults() -> dict[str, str]:
    """UCX and NIXL settings, where the user has none."""
    defaults = {
        "NIXL_LOG_LEVEL": "FATAL",  # errors reach us as exceptions
        "UCX_RCACHE_MAX_UNRELEASED": "1024",  # unbounded, the registration cache leaks
    }
    if not torch.cuda.is_available():
        defaults["UCX_TLS"] = "tcp,self,sm"  # do not probe for GPUs and RDMA devices
    if "UCX_LOG_FILE" not in os.environ:
        defaults |= ucx_log().environment()
    return defaults


@contextmanager
def ucx_environment() -> Iterator[None]:
    """The defaults are in the environment within."""
    added = {name: value for name, value in ucx_defaults().items() if name not in os.environ}
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
        f"NIXL cannot be loaded ({'; '.join(failures)}); install nixl-cu12 (nixl-cu13 for CUDA "
        "13), or use --kv-transport loopback in one process",
        param="kv_transport",
    )


@functools.cache
def nixl_errors() -> tuple[type[Exception], ...]:
    """Every exception class of the library."""
    names = [name for name in vars(nixl_bindings()) if name.endswith("Error")]
    return tuple(getattr(nixl_bindings(), name) for name in names)


def _cuda_major() -> str:
    return (torch.version.cuda or "12").partition(".")[0]
