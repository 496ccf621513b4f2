"""Tests are the same on every machine: they see no GPU, but for those that are marked gpu.

These run in a process of their own, since a process that plays kernels in Triton's interpreter
compiles none.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from cluster.supervisor.devices import VISIBLE_DEVICES


def hide_gpus(environ: MutableMapping[str, str], asked_for: str) -> None:
    """For this process and those that it starts, unless pytest is asked for `-m gpu`.

    To be called before torch looks for CUDA.
    """
    if asked_for != "gpu":
        environ[VISIBLE_DEVICES] = ""
