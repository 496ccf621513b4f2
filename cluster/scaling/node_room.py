"""What of a cluster's nodes is free for new pods that ask for devices. Pure.

Looked at are devices (GPUs, network cards), cores, memory and the number of pods, which nodes a pod
may be on, and what others have on these; affinities among pods are the scheduler's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from cluster.scaling.groups import Object
from cluster.scaling.label_selectors import selects
from cluster.scaling.node_fit import is_cordoned, may_be_on, suits
from cluster.scaling.pod_needs import Amounts, PodNeeds, added, is_device, pod_needs
from cluster.scaling.pool_growth import PoolGrowth
from cluster.scaling.quantity import in_words, quantity

_PLAIN = ("cpu", "memory", "ephemeral-storage", "pods")
"""Of which a node that does not say how much it has is taken to have enough."""
_PLENTY = 1_000_000
"""Pods."""


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
                _take(self._free[name], pod_needs(pod["spec"]).on_a_node(), 1)

    def nodes_for(self, pod: Object) -> list[Object]:
        """Those that its spec lets it be on, the fullest first."""
        found = [node for node in self._nodes if may_be_on(pod, node)]
        return sorted(found, key=self._devices_left)

    def num_cordoned(self, pod: Object) -> int:
        """Nodes that would be for it."""
        return sum(is_cordoned(node) and suits(pod, node) for node in self._nodes)

    def _devices_left(self, node: Object) -> Fraction:
        left = (amount for name, amount in self.left_on(node).items() if is_device(name))
        return sum(left, Fraction(0))

    def left_on(self, node: Object) -> dict[str, Fraction]:
        """By what it has; never below 0."""
        free = self._free[node["metadata"]["name"]]
        return {name: max(Fraction(0), amount) for name, amount in free.items()}

    def room(self, nodes: Iterable[Object], wanted: Amounts) -> int:
        """For how many pods each of which wants that there is some."""
        return sum(_fitting(self.left_on(node), wanted) for node in nodes)

    def place(self, nodes: Iterable[Object], wanted: Amounts, number: int) -> int:
        """How many of so many pods have found one."""
        placed = 0
        for node in nodes:
            taken = min(_fitting(self.left_on(node), wanted), number - placed)
            _take(self._free[node["metadata"]["name"]], wanted, taken)
            placed += taken
        return placed


def _refusal(room: _Room, growth: PoolGrowth, own: Sequence[Object]) -> str:
    """Empty: there is enough."""
    number = growth.size - len(_of(growth, own)) // len(growth.pods)
    for spec, needs in zip(growth.pods, growth.needs, strict=True):
        if number <= 0 or not needs.devices:
            continue
        nodes = room.nodes_for(spec)
        numbers = _in_numbers(room, nodes, needs, number)
        placed = room.place(nodes, needs.on_a_node(), number)
        if placed < number:
            cordoned = room.num_cordoned(spec)
            beside = f" (another {cordoned} cordoned)" if cordoned else ""
            asked, free = numbers
            return (
                f"{number} worker(s) of {growth.pool} have no node yet, and a pod of theirs asks "
                f"for {asked}: of the {len(nodes)} node(s) that it may be on{beside} {free} are "
                f"free, room for {placed}"
            )
    return ""


def _in_numbers(
    room: _Room, nodes: Sequence[Object], needs: PodNeeds, number: int
) -> tuple[str, str]:
    """What a pod asks for, and how much of that is free."""
    devices = dict.fromkeys(needs.devices, Fraction(0))
    left = devices | added(*map(room.left_on, nodes))
    there = devices | added(*map(_allocatable, nodes))
    short = _short_of(room, nodes, needs, number)
    wanted = {name: amount for name, amount in short.items() if name in there}
    asked = [f"{in_words(name, amount)} {name}" for name, amount in wanted.items()]
    free = [f"{in_words(n, left[n])} of {in_words(n, there[n])} {n}" for n in wanted]
    return " and ".join(each for each in asked if each != "1 pods"), " and ".join(free)


def _short_of(
    room: _Room, nodes: Sequence[Object], needs: PodNeeds, number: int
) -> dict[str, Fraction]:
    """What a refusal has to name: its devices, and what else alone leaves no room for all; all of
    it where each alone does."""
    wanted = needs.on_a_node()
    short = {
        name: amount
        for name, amount in wanted.items()
        if name in needs.devices or room.room(nodes, {name: amount}) < number
    }
    devices = {name: amount for name, amount in wanted.items() if name in needs.devices}
    if short == devices and room.room(nodes, devices) >= number:
        return wanted
    return short


def _of(growth: PoolGrowth, own: Sequence[Object]) -> list[Object]:
    return [pod for pod in own if selects(growth.selector, pod["metadata"].get("labels") or {})]


def _surplus(growth: PoolGrowth, own: Sequence[Object]) -> list[Object]:
    """Pods of a pool that is ordered to be smaller: as many as will leave, whichever it will be."""
    if growth.num_new >= 0:
        return []
    return _of(growth, own)[growth.size * len(growth.pods) :]


def _fitting(free: Amounts, wanted: Amounts) -> int:
    """How many pods a node has room for."""
    parts = (
        int(free.get(name, Fraction(0)) // amount)
        for name, amount in wanted.items()
        if name in free or is_device(name)
    )
    return min(parts, default=_PLENTY)


def _take(free: dict[str, Fraction], wanted: Amounts, number: int) -> None:
    """Of what the node has; it may be more than that."""
    for name in free.keys() & wanted.keys():
        free[name] -= wanted[name] * number


def _allocatable(node: Object) -> dict[str, Fraction]:
    """What pods may have of a node. Raises ValueError."""
    there = (node.get("status") or {}).get("allocatable") or {}
    return {
        name: quantity(amount)
        for name, amount in there.items()
        if name in _PLAIN or is_device(name)
    }
