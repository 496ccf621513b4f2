"""What ranks take of a Ray cluster, and what to say when it is not there. Pure.

GPU ranks                       one GPU each
CPU ranks, the usual case       one CPU each
CPU ranks, where any node       one of it each: an operator says how many a node takes, and
offers `splitserve_rank`        which nodes take any

A node with the label `splitserve-worker=own` (`ray start --labels`) was brought along by the worker
that is on it: it takes that worker's first ranks, as many as it has room for, and nobody else's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RANK_RESOURCE = "splitserve_rank"
WORKER_LABEL, OWN = "splitserve-worker", "own"
_NODE_LABEL = "ray.io/node-id"
_SHOWN = ("CPU", "GPU", RANK_RESOURCE)

Resources = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """One node of a cluster: what it has, and what of it is free now."""

    node_id: str
    address: str
    total: Resources
    free: Resources
    is_a_workers: bool = False
    """Nobody's but of the worker that is there (WORKER_LABEL)."""

    @property
    def label(self) -> str:
        """For people: several nodes may share an address."""
        return f"{self.address} ({self.node_id[:8]})"


def bundle_of_a_rank(nodes: Sequence[NodeRoom], *, uses_gpus: bool) -> dict[str, float]:
    """What one rank asks for in this cluster."""
    if uses_gpus:
        return {"GPU": 1.0}
    if any(node.total.get(RANK_RESOURCE, 0.0) > 0 for node in nodes):
        return {RANK_RESOURCE: 1.0}
    return {"CPU": 1.0}


def num_that_fit(bundle: Resources, room: Resources) -> int:
    """Of equal bundles, in such a room."""
    return min(int(room.get(name, 0.0) // amount) for name, amount in bundle.items())


def open_to(nodes: Sequence[NodeRoom], first_node: str | None) -> list[NodeRoom]:
    """Where ranks of a worker on `first_node` may be."""
    return [node for node in nodes if node.node_id == first_node or not node.is_a_workers]


def num_pinned(
    bundles: Sequence[Resources], nodes: Sequence[NodeRoom], first_node: str | None
) -> int:
    """How many of equal bundles, from the first on, have to be on `first_node`."""
    if first_node is None:
        return 0
    own = [node for node in nodes if node.node_id == first_node and node.is_a_workers]
    room = num_that_fit(bundles[0], own[0].total) if own else 1
    return min(len(bundles), max(1, room))


def selectors_of(
    bundles: Sequence[Resources], nodes: Sequence[NodeRoom], first_node: str | None
) -> list[dict[str, str]]:
    """Of labels: what the node of each bundle has to say of itself. One whose label is missing is
    no worker's."""
    num_here = num_pinned(bundles, nodes, first_node)
    here = [{_NODE_LABEL: first_node} for _ in range(num_here) if first_node is not None]
    return here + [{WORKER_LABEL: f"!{OWN}"} for _ in range(len(bundles) - num_here)]


def fits_one_node(
    bundles: Sequence[Resources], nodes: Sequence[NodeRoom], first_node: str | None
) -> bool:
    """Of nodes that are otherwise empty: of `first_node`, where the first bundle has to be there.
    All bundles are equal."""
    allowed = [n for n in open_to(nodes, first_node) if first_node in (None, n.node_id)]
    return any(num_that_fit(bundles[0], node.total) >= len(bundles) for node in allowed)


def can_ever_fit(
    bundles: Sequence[Resources], nodes: Sequence[NodeRoom], first_node: str | None
) -> bool:
    """In a cluster that is otherwise empty. All bundles are equal."""
    first = [node for node in nodes if node.node_id == first_node]
    if first_node is not None and (not first or num_that_fit(bundles[0], first[0].total) < 1):
        return False
    room = (num_that_fit(bundles[0], node.total) for node in open_to(nodes, first_node))
    return sum(room) >= len(bundles)


def order_of_bundles(nodes_of_bundles: Sequence[str]) -> tuple[int, ...]:
    """The bundle of each rank: the first bundle is the conductor's, the others follow by node, its
    own before the rest, so that neighbours in the order share a node."""
    first = nodes_of_bundles[0]

    def place(bundle: int) -> tuple[bool, bool, str, int]:
        node = nodes_of_bundles[bundle]
        return bundle != 0, node != first, node, bundle

    return tuple(sorted(range(len(nodes_of_bundles)), key=place))


def table_of_what_is_asked(
    bundles: Sequence[Resources], nodes: Sequence[NodeRoom], first_node: str | None
) -> str:
    """Lines for the operator: each bundle, and each node with what is free of what it has."""
    num_here = num_pinned(bundles, nodes, first_node)
    asked = [("bundle", "asked", "where")]
    asked += [
        (str(index), _in_words(bundle), "on this node" if index < num_here else "anywhere")
        for index, bundle in enumerate(bundles)
    ]
    free = [("node", "free", "of")]
    free += [
        (
            node.label + _whose(node, first_node),
            _in_words(_shown(node.free, node.total, bundles)),
            _in_words(_shown(node.total, node.total, bundles)),
        )
        for node in nodes
    ]
    return "\n".join([*_aligned(asked), *_aligned(free)])


def _whose(node: NodeRoom, first_node: str | None) -> str:
    if node.node_id == first_node:
        return ", this node"
    return ", another worker's" if node.is_a_workers else ""


def _shown(room: Resources, total: Resources, bundles: Sequence[Resources]) -> dict[str, float]:
    asked = [name for bundle in bundles for name in bundle]
    names = dict.fromkeys([*asked, *(name for name in _SHOWN if name in total)])
    return {name: room.get(name, 0.0) for name in names}


def _in_words(resources: Resources) -> str:
    return ", ".join(f"{name} {amount:g}" for name, amount in resources.items()) or "nothing"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return [f"  {'  '.join(cells)}".rstrip() for cells in padded]
