"""Room in a Ray cluster for the ranks of one replica: a placement group, one bundle for each.

    one node has room for all when it is empty    STRICT_PACK, for a while
    else, or when others keep that room           PACK: as few nodes as can be
    nobody ever has room                          refused at once
    others have taken it                          refused after PLACE_TIMEOUT_S

A refusal is a ConfigError with a table: each bundle, what it asks for, and what is free by node.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.deadline import Clock, Deadline
from cluster.errors import ConfigError
from cluster.launcher.ray.bundles import (
    Resources,
    can_ever_fit,
    fits_one_node,
    num_that_fit,
    open_to,
    selectors_of,
    table_of_what_is_asked,
)
from cluster.launcher.ray.library import RayHandle
from cluster.launcher.ray.own_group import BY_ID
from cluster.launcher.ray.session import RaySession

PLACE_TIMEOUT_S = 30.0
_ONE_NODE_PATIENCE_S = 5.0
"""For a node that would hold all ranks, while others still hold a part of it: a replica that has
just died gives its room back within a second or two."""
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class PlacedGroup:
    """A placement group that stands."""

    handle: RayHandle
    bundles: tuple[Mapping[str, float], ...]
    """What each holds, by index."""
    nodes: tuple[str, ...]
    """The id of the node of each."""
    is_own: bool
    """Made here; otherwise somebody else's, whose process this one is part of."""

    def remove(self, session: RaySession) -> None:
        """Gives the room back, and ends what still computes there, where it is our own."""
        if self.is_own:
            session.ray.util.remove_placement_group(self.handle)


def place_group(
    session: RaySession,
    name: str,
    bundles: Sequence[Resources],
    *,
    first_node: str | None = None,
    timeout_s: float = PLACE_TIMEOUT_S,
    clock: Clock = time.monotonic,
) -> PlacedGroup:
    """Room for equal bundles; the first one on `first_node`, where that is named.

    Waits `timeout_s` at most. Raises ConfigError, and leaves nothing asked for.
    """
    deadline = Deadline.after(timeout_s, clock)
    check_size(session, bundles, first_node=first_node)
    attempts = [("PACK", timeout_s)]
    if len(bundles) > 1 and fits_one_node(bundles, session.nodes(), first_node):
        attempts.insert(0, ("STRICT_PACK", min(_ONE_NODE_PATIENCE_S, timeout_s / 3)))
    state = ""
    for strategy, patience_s in attempts:
        handle = _asked(session, name, bundles, strategy, first_node)
        state = _settled(session, handle, deadline.sooner_of(patience_s))
        if state == "CREATED":
            return _placed(session, handle, is_own=True)
        session.ray.util.remove_placement_group(handle)
    if state == "INFEASIBLE":
        raise _refusal(session, bundles, first_node, "no nodes of the cluster can hold it")
    why = f"others hold it, and have not given it back in {timeout_s:g} s"
    raise _refusal(session, bundles, first_node, why)


def check_size(
    session: RaySession, bundles: Sequence[Resources], *, first_node: str | None = None
) -> None:
    """Raises ConfigError where the cluster would be too small for equal bundles if it were empty;
    `first_node` as for `place_group`."""
    if not can_ever_fit(bundles, session.nodes(), first_node):
        raise _refusal(session, bundles, first_node, "the cluster does not have that much")


def check_free(session: RaySession, bundles: Sequence[Resources]) -> None:
    """Raises ConfigError where nodes have less room now than equal bundles take. Asks for nothing,
    and so holds nothing: others may be sooner."""
    nodes = open_to(session.nodes(), None)
    if sum(num_that_fit(bundles[0], node.free) for node in nodes) < len(bundles):
        raise _refusal(session, bundles, None, "others hold it")


def group_of(session: RaySession, name: str | None) -> PlacedGroup | None:
    """The group of that name, or id (own_group.py), or else the one that this process runs in as a
    Ray worker; None: there is none. Raises ConfigError for one that nobody has."""
    if name is None:
        current = session.ray.util.get_current_placement_group()
        return None if current is None else _placed(session, current, is_own=False)
    try:
        handle = _group_called(session.ray, name)
    except ValueError as cause:
        raise ConfigError(f"the placement group {name} is gone: {cause}") from cause
    return _placed(session, handle, is_own=False)


def _group_called(ray: RayHandle, name: str) -> RayHandle:
    """Raises ValueError where there is none."""
    if not name.startswith(BY_ID):
        return ray.util.get_placement_group(name)
    number = ray.PlacementGroupID(bytes.fromhex(name.removeprefix(BY_ID)))
    handle = importlib.import_module("ray.util.placement_group").PlacementGroup(number)
    if ray.util.placement_group_table(handle).get("state") != "CREATED":
        raise ValueError("no group of that id stands")
    return handle


def _asked(
    session: RaySession,
    name: str,
    bundles: Sequence[Resources],
    strategy: str,
    first_node: str | None,
) -> RayHandle:
    try:
        return session.ray.util.placement_group(
            [dict(bundle) for bundle in bundles],
            strategy=strategy,
            name=name,
            bundle_label_selector=selectors_of(bundles, session.nodes(), first_node),
        )
    except (session.ray.exceptions.RayError, ValueError) as cause:
        raise ConfigError(
            f"Ray refuses the placement group {name}: {str(cause).partition(chr(10))[0]}"
        ) from cause


def _settled(session: RaySession, handle: RayHandle, deadline: Deadline) -> str:
    """CREATED, INFEASIBLE, or what it is at when the time is over."""
    while True:
        row = session.ray.util.placement_group_table(handle)
        state = str(row.get("state", "PENDING"))
        if state == "CREATED":
            return state
        if row.get("stats", {}).get("scheduling_state") == "INFEASIBLE":
            return "INFEASIBLE"
        if deadline.has_passed:
            return state
        time.sleep(_POLL_S)


def _placed(session: RaySession, handle: RayHandle, *, is_own: bool) -> PlacedGroup:
    row = session.ray.util.placement_group_table(handle)
    indices = sorted(row["bundles"])
    return PlacedGroup(
        handle=handle,
        bundles=tuple(row["bundles"][index] for index in indices),
        nodes=tuple(row["bundles_to_node_id"][index] for index in indices),
        is_own=is_own,
    )


def _refusal(
    session: RaySession, bundles: Sequence[Resources], first_node: str | None, why: str
) -> ConfigError:
    table = table_of_what_is_asked(bundles, session.nodes(), first_node)
    return ConfigError(
        f"there is no room for {len(bundles)} rank(s): {why}\n{table}\n"
        "lower --tensor-parallel-size or the number of workers, or add nodes to the cluster",
        param="tensor_parallel_size",
    )
