"""Which devices of a cluster's nodes are free for new pods. Pure.

Looked at are devices (GPUs, network cards), which nodes a pod may be on, and what others have on
these; cores and memory are the scheduler's, as are affinities among pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from cluster.scaling.groups import Object
from cluster.scaling.label_selectors import selects
from cluster.scaling.node_fit import may_be_on
from cluster.scaling.pod_needs import is_device, pod_needs
from cluster.scaling.pool_growth import PoolGrowth
from cluster.scaling.quantity import quantity

Devices = Counter[str]
"""Pieces by resource."""


def wants_devices(growths: Iterable[PoolGrowth]) -> bool:
    """Whether there is anything to look at. Raises ValueError."""
    return any(needs.devices for growth in growths for needs in growth.needs)


def device_refusals(
    nodes: Sequence[Object],
    pods: Sequence[Object],
    growths: Sequence[PoolGrowth],
    namespace: str,
) -> list[str]:
    """One for each pool whose pods find too few, those before it in the row being served first.

    `pods`: all of the cluster that have a node; those that end, and those of pools that get
    smaller, give their devices back. Raises ValueError for an amount that is none."""
    standing = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    own = [pod for pod in standing if pod["metadata"].get("namespace") == namespace]
    leaving = [id(pod) for growth in growths for pod in _surplus(growth, own)]
    room = _Room(nodes, [pod for pod in standing if id(pod) not in leaving])
    return [text for growth in growths if (text := _refusal(room, growth, own))]


class _Room:
    """What is free, while pods are given places."""

    def __init__(self, nodes: Sequence[Object], pods: Sequence[Object]) -> None:
        self._nodes = nodes
        self._free = {node["metadata"]["name"]: _allocatable(node) for node in nodes}
        for pod in pods:
            if (name := pod["spec"].get("nodeName")) in self._free:
                self._free[name].subtract(pod_needs(pod["spec"]).devices)

    def nodes_for(self, pod: Object) -> list[Object]:
        """Those that its spec lets it be on, the fullest first."""
        found = [node for node in self._nodes if may_be_on(pod, node)]
        return sorted(found, key=lambda node: self.left_on(node).total())

    def left_on(self, node: Object) -> Devices:
        return +self._free[node["metadata"]["name"]]

    def place(self, nodes: Iterable[Object], wanted: Mapping[str, int], number: int) -> int:
        """How many of so many pods have found one."""
        placed = 0
        for node in nodes:
            free = self._free[node["metadata"]["name"]]
            fitting = min(free[name] // pieces for name, pieces in wanted.items())
            taken = max(0, min(fitting, number - placed))
            free.subtract({name: pieces * taken for name, pieces in wanted.items()})
            placed += taken
        return placed


def _refusal(room: _Room, growth: PoolGrowth, own: Sequence[Object]) -> str:
    """Empty: there is enough."""
    number = growth.size - len(_of(growth, own)) // len(growth.pods)
    for spec, needs in zip(growth.pods, growth.needs, strict=True):
        wanted = needs.devices
        if number <= 0 or not wanted:
            continue
        nodes = room.nodes_for(spec)
        there = sum(map(_allocatable, nodes), Devices())
        left = sum(map(room.left_on, nodes), Devices())
        placed = room.place(nodes, wanted, number)
        if placed < number:
            asked = " and ".join(f"{pieces} {name}" for name, pieces in wanted.items())
            free = " and ".join(f"{left[name]} of {there[name]} {name}" for name in wanted)
            return (
                f"{number} worker(s) of {growth.pool} have no node yet, and a pod of theirs asks "
                f"for {asked}: of the {len(nodes)} node(s) that it may be on {free} are free, "
                f"room for {placed}"
            )
    return ""


def _of(growth: PoolGrowth, own: Sequence[Object]) -> list[Object]:
    return [pod for pod in own if selects(growth.selector, pod["metadata"].get("labels") or {})]


def _surplus(growth: PoolGrowth, own: Sequence[Object]) -> list[Object]:
    """Pods of a pool that is ordered to be smaller: as many as will leave, whichever it will be."""
    if growth.num_new >= 0:
        return []
    return _of(growth, own)[growth.size * len(growth.pods) :]


def _allocatable(node: Object) -> Devices:
    there = (node.get("status") or {}).get("allocatable") or {}
    return Devices({name: int(quantity(each)) for name, each in there.items() if is_device(name)})
