"""Where a Unix socket lies: the system takes short paths only."""

from __future__ import annotations

import os
from pathlib import Path

from cluster.errors import ConfigError

MAX_PATH_BYTES = 107
"""Of Linux: 108 with the end mark."""


def socket_path(folder: Path, name: str) -> Path:
    """Of a socket in `folder`. Raises ConfigError for one that the system would refuse."""
    path = folder / name
    length = len(os.fsencode(path))
    if length > MAX_PATH_BYTES:
        raise ConfigError(
            f"the socket {path} has a path of {length} bytes, and this system takes "
            f"{MAX_PATH_BYTES}; set TMPDIR to a folder with a shorter name"
        )
    return path
