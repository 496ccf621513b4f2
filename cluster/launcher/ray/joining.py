"""Waiting for hosts that join a Ray cluster, until it is as large as its ranks need."""

from __future__ import annotations

import time
from collections.abc import Sequence

from cluster.deadline import Clock, Deadline
from cluster.launcher.ray.bundles import Resources, can_ever_fit
from cluster.launcher.ray.open_ray import HostWait
from cluster.launcher.ray.session import RaySession
from cluster.logs import get_logger

_LOOK_S = 1.0
_SAY_EVERY = 30
"""Looks between two lines in the log."""
_log = get_logger("ray")


def await_hosts(
    session: RaySession,
    bundles: Sequence[Resources],
    *,
    first_node: str | None,
    patience: HostWait,
    clock: Clock = time.monotonic,
) -> None:
    """Returns when the cluster would have room for equal bundles if it were empty, or when patience
    is at its end: whoever places them then says what is missing."""
    deadline = Deadline.after(patience.limit_s, clock)
    looks = 0
    while not can_ever_fit(bundles, nodes := session.nodes(), first_node):
        if deadline.has_passed:
            return
        if looks % _SAY_EVERY == 0:
            _log.info(
                "the ranks wait for hosts to join Ray",
                address=session.address,
                num_hosts=len(nodes),
                num_ranks=len(bundles),
                left_s=round(deadline.remaining_s),
            )
        looks += 1
        patience.on_wait()
        time.sleep(min(_LOOK_S, deadline.remaining_s))
