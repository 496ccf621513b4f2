"""How many pods of the old and of the new template there are next, in a Deployment's update."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.mini_cluster.history import Object

_QUARTER = "25%"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of a Deployment's pods, while it changes."""

    wanted: int
    surge: int
    """How many more than wanted there may be."""
    unavailable: int
    """How many less than wanted may be available."""

    @classmethod
    def of(cls, deployment: Object) -> Bounds:
        spec = deployment["spec"]
        wanted: int = spec.get("replicas", 1)
        strategy = spec.get("strategy") or {}
        rolling = strategy.get("rollingUpdate") or {}
        surge = math.ceil(_share(rolling.get("maxSurge", _QUARTER), wanted))
        missing = math.floor(_share(rolling.get("maxUnavailable", _QUARTER), wanted))
        return cls(wanted, surge, missing if surge or missing else 1)


def _share(given: int | str, wanted: int) -> float:
    return given if isinstance(given, int) else int(given.removesuffix("%")) * wanted / 100


@dataclass(frozen=True, slots=True)
class Generation:
    """Pods of one template: how many are asked for, and how many of them are available."""

    asked: int
    available: int


def grown(bounds: Bounds, new: Generation, old: list[Generation]) -> int:
    """How many of the new to ask for."""
    room = bounds.wanted + bounds.surge - new.asked - sum(each.asked for each in old)
    return min(bounds.wanted, new.asked + max(0, room))


def shrunk(bounds: Bounds, new: Generation, old: list[Generation]) -> list[int]:
    """How many of each old generation to ask for, the oldest first: what is not available goes
    first, what is goes as far as enough others are available."""
    everybody = new.asked + sum(each.asked for each in old)
    floor = bounds.wanted - bounds.unavailable
    spare = max(0, everybody - floor - max(0, new.asked - new.available))
    left = []
    for each in old:
        broken = min(spare, max(0, each.asked - each.available))
        spare -= broken
        left.append(each.asked - broken)
    available = new.available + sum(
        min(each.available, kept) for each, kept in zip(old, left, strict=True)
    )
    spare = min(spare, max(0, available - floor))
    for place, kept in enumerate(left):
        gone = min(spare, kept)
        left[place] = kept - gone
        spare -= gone
    return left
