"""What a pod asks of its namespace's quota and of its node. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from cluster.scaling.groups import Object
from cluster.scaling.quantity import quantity

Amounts = Mapping[str, Fraction]
"""By the name of a resource: cpu, memory, nvidia.com/gpu."""
_COMPUTE = ("cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNeeds:
    """As the scheduler and a quota count it."""

    requests: Amounts
    limits: Amounts

    @property
    def devices(self) -> dict[str, int]:
        """Resources that nodes count in pieces: GPUs, network cards."""
        return {
            name: int(amount)
            for name, amount in self.requests.items()
            if is_device(name) and amount
        }

    def on_a_node(self) -> dict[str, Fraction]:
        """What a node has to have free for it: devices, cores, memory, and a place."""
        plain = {name: self.requests[name] for name in _COMPUTE if self.requests.get(name)}
        pieces = {name: Fraction(number) for name, number in self.devices.items()}
        return {**pieces, **plain, "pods": Fraction(1)}

    def of_quota(self) -> dict[str, Fraction]:
        """By the names that a quota has for it."""
        found = {"pods": Fraction(1), "count/pods": Fraction(1)}
        found |= {f"requests.{name}": amount for name, amount in self.requests.items()}
        found |= {f"limits.{name}": amount for name, amount in self.limits.items()}
        return found | {name: self.requests[name] for name in _COMPUTE if name in self.requests}


def pod_needs(spec: Object) -> PodNeeds:
    """Of a pod's spec. Raises ValueError for an amount that is none."""
    return PodNeeds(requests=_total(spec, _requests), limits=_total(spec, _limits))


def is_device(resource: str) -> bool:
    """Such as nvidia.com/gpu: what a device plugin tells a node."""
    return "/" in resource and "kubernetes.io/" not in resource


def added(*parts: Amounts) -> dict[str, Fraction]:
    """Each resource's sum."""
    names = {name for part in parts for name in part}
    return {
        name: sum((part.get(name, Fraction(0)) for part in parts), Fraction(0)) for name in names
    }


def _requests(container: Object) -> Amounts:
    """Where a limit alone is said, it is the request as well."""
    resources = container.get("resources") or {}
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _limits(container: Object) -> Amounts:
    return _amounts((container.get("resources") or {}).get("limits") or {})


def _total(spec: Object, of: Callable[[Object], Amounts]) -> Amounts:
    """Containers run side by side; those that come before run one by one, each beside the side-cars
    that were started by then."""
    side_cars: Amounts = {}
    before: Amounts = {}
    for container in spec.get("initContainers") or ():
        beside = added(side_cars, of(container))
        before = _larger(before, beside)
        if container.get("restartPolicy") == "Always":
            side_cars = beside
    running = added(side_cars, *(of(each) for each in spec["containers"]))
    return added(_larger(running, before), _amounts(spec.get("overhead") or {}))


def _larger(one: Amounts, other: Amounts) -> Amounts:
    zero = Fraction(0)
    return {name: max(one.get(name, zero), other.get(name, zero)) for name in {*one, *other}}


def _amounts(written: Mapping[str, object]) -> Amounts:
    return {name: quantity(amount) for name, amount in written.items()}
