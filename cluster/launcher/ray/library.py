"""Ray, imported where it is asked for: most processes never do, and many have none.

Its usage report is off unless $RAY_USAGE_STATS_ENABLED says otherwise, and what actors print stays
where they are unless $RAY_LOG_TO_DRIVER does. It has no types: its handles are `Any` here.
"""

from __future__ import annotations

import os
from typing import Any

from cluster.errors import ConfigError
from cluster.extras import how_to_install

_REMEDY = f"{how_to_install('ray')}; or start ranks and workers as processes"
_UNLESS_ASKED = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # A call that comes after the end of a connection would begin another.
    "RAY_ENABLE_AUTO_CONNECT": "0",
    # An actor without a GPU keeps the variable as it was; a hosted process is told its devices.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Ray would end this process a minute after its head, past all that it holds; see head_watch.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
}

RayHandle = Any
"""Of an actor, a placement group or a result that is not there yet."""


def ray_library() -> Any:
    """The package. Raises ConfigError where it is not installed, or cannot be imported."""
    for name, value in _UNLESS_ASKED.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as cause:
        raise ConfigError(f"Ray cannot be imported: {cause}; {_REMEDY}") from cause
    return ray


def forwards_logs() -> bool:
    """True where the operator wants Ray's own log forwarding beside ours."""
    return os.environ.get("RAY_LOG_TO_DRIVER", "0") not in ("", "0")
