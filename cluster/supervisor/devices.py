"""Which GPU each worker of this machine gets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_DEVICE_FILE = re.compile(r"nvidia\d+")


def visible_gpus(environ: Mapping[str, str], device_folder: Path = Path("/dev")) -> tuple[str, ...]:
    """Names that CUDA_VISIBLE_DEVICES understands: the variable's own, else one per device file."""
    if VISIBLE_DEVICES in environ:
        return tuple(name.strip() for name in environ[VISIBLE_DEVICES].split(",") if name.strip())
    files = [path for path in device_folder.glob("nvidia*") if _DEVICE_FILE.fullmatch(path.name)]
    return tuple(str(ordinal) for ordinal in range(len(files)))


def gpu_environ(gpus: tuple[str, ...], worker_index: int) -> dict[str, str]:
    """One GPU per worker, in turn; nothing to say where there is no choice."""
    return {VISIBLE_DEVICES: gpus[worker_index % len(gpus)]} if len(gpus) > 1 else {}
