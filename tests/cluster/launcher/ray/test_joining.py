"""Hosts that join one after the other. No Ray."""

from __future__ import annotations

from typing import cast

import pytest

from cluster.launcher.ray import joining
from cluster.launcher.ray.bundles import RANK_RESOURCE, NodeRoom
from cluster.launcher.ray.joining import await_hosts
from cluster.launcher.ray.open_ray import HostWait
from cluster.launcher.ray.session import RaySession

HEAD = "head"


class Joining:
    """A session of a cluster that one more host has joined at each look, and the time."""

    address = "10.0.0.5:6379"

    def __init__(self) -> None:
        self.looks = 0
        self.now_s = 0.0

    def nodes(self) -> list[NodeRoom]:
        self.looks += 1
        one = {RANK_RESOURCE: 2.0}
        return [NodeRoom(HEAD if n == 0 else f"{n}", "", one, one) for n in range(self.looks)]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Joining:
    found = Joining()

    def sleep(seconds: float) -> None:
        found.now_s += seconds

    monkeypatch.setattr(joining.time, "sleep", sleep)
    return found


def waited(cluster: Joining, num_ranks: int, limit_s: float) -> int:
    """How often the wait was told of."""
    told: list[float] = []
    await_hosts(
        cast("RaySession", cluster),
        [{RANK_RESOURCE: 1.0}] * num_ranks,
        first_node=HEAD,
        patience=HostWait(limit_s=limit_s, on_wait=lambda: told.append(cluster.now_s)),
        clock=lambda: cluster.now_s,
    )
    return len(told)


def test_a_start_waits_until_so_many_hosts_have_joined_as_the_ranks_need(cluster: Joining) -> None:
    assert waited(cluster, 7, 600) == 3 and cluster.looks == 4
    assert waited(cluster, 7, 600) == 0, "all are there"


def test_patience_ends_and_none_is_none(cluster: Joining) -> None:
    assert waited(cluster, 100, 5) == 5 and cluster.now_s == 5
    assert waited(Joining(), 100, 0) == 0
