"""The placement group that this process runs in as a task or an actor of Ray: for its children, who
are nobody's tasks and would ask in vain.

    worker    environ_of_own_group()     into the environment of its engine
    engine    group_of(session, name)    finds it by that (placing.py)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

PLACEMENT_GROUP = "SPLITSERVE_PLACEMENT_GROUP"
"""Names the group that holds room for a process's ranks, or says which it is; the process has the
first bundle."""
BY_ID = "id:"
"""Before the hexadecimal id of a group, which need not have a name."""
_ADDRESS = "RAY_ADDRESS"


def environ_of_own_group(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Empty where this process runs in no group, or its environment names one. Imports nothing: who
    runs in one has Ray."""
    ray: Any = sys.modules.get("ray")
    if ray is None or PLACEMENT_GROUP in environ or not ray.is_initialized():
        return {}
    group = ray.util.get_current_placement_group()
    if group is None:
        return {}
    address = environ.get(_ADDRESS) or ray.get_runtime_context().gcs_address
    return {PLACEMENT_GROUP: f"{BY_ID}{group.id.hex()}", _ADDRESS: address}
