"""Room in /dev/shm, by which NCCL's ranks of one host talk: 64 MB in a container that asks for no
more."""

from __future__ import annotations

import shutil
from pathlib import Path

NEEDED_BYTES = 1 << 30
"""NCCL takes some 10 MB for each pair of ranks and channel; with less room it fails or hangs."""
_FOLDER = Path("/dev/shm")


def in_little_room(folder: Path = _FOLDER) -> str:
    """For the end of an error, with the remedy; empty where there is room, or nobody knows."""
    try:
        total = shutil.disk_usage(folder).total
    except OSError:
        return ""
    if total >= NEEDED_BYTES:
        return ""
    return (
        f"; /dev/shm holds {total >> 20} MiB, and NCCL needs it between GPUs of one host: start "
        "the container with --shm-size 1g, or give the pod an emptyDir of medium Memory there"
    )
