"""Where this project keeps what it has fetched, compiled and logged.

    <home>/models/     see cluster/models/cache/store.py
    <home>/kernels/    compiled on first use: native libraries, and Triton's in triton/
    <home>/logs/       one folder for each start of `splitserve serve`

<home> is $SPLITSERVE_HOME, else ~/.cache/splitserve. Nobody else reads the variable.
"""

from __future__ import annotations

import os
from pathlib import Path

from cluster.errors import ConfigError


def default_home() -> Path:
    """$SPLITSERVE_HOME, else ~/.cache/splitserve. Raises ConfigError where there is no home."""
    home = os.environ.get("SPLITSERVE_HOME")
    try:
        return Path(home).expanduser() if home else Path.home() / ".cache" / "splitserve"
    except RuntimeError as cause:
        raise ConfigError(
            f"no folder for models and logs: {home or 'HOME is not set, and this user'} has no "
            "home directory; set SPLITSERVE_HOME to a folder that can be written"
        ) from cause


def home_limit_bytes() -> int | None:
    """Beyond which whoever runs this process ends it, as Kubernetes does for a volume's sizeLimit:
    $SPLITSERVE_HOME_LIMIT_BYTES; None: the disk alone limits it. Raises ConfigError."""
    raw = os.environ.get("SPLITSERVE_HOME_LIMIT_BYTES")
    if not raw:
        return None
    if not (raw.isascii() and raw.isdecimal()):
        raise ConfigError(f"SPLITSERVE_HOME_LIMIT_BYTES is {raw[:40]!r}; write a number of bytes")
    return int(raw)


def kernels_folder() -> Path:
    """What is compiled on this machine, for all processes. Raises ConfigError as `default_home`."""
    return default_home() / "kernels"
