"""Names for the hosts of ranks: equal where ranks share memory and Unix sockets, and only there."""

from __future__ import annotations

from collections.abc import Mapping

from cluster.launcher.ray.machine import HostFacts


def names_of_hosts(facts: Mapping[int, HostFacts]) -> tuple[str, ...]:
    """By rank. The host's own name, with a number where several containers share it."""
    machines_by_name: dict[str, list[str]] = {}
    for rank in sorted(facts):
        machines = machines_by_name.setdefault(facts[rank].host_name, [])
        if facts[rank].machine not in machines:
            machines.append(facts[rank].machine)
    return tuple(_name(facts[rank], machines_by_name) for rank in sorted(facts))


def _name(facts: HostFacts, machines_by_name: Mapping[str, list[str]]) -> str:
    place = machines_by_name[facts.host_name].index(facts.machine)
    return facts.host_name if place == 0 else f"{facts.host_name}-{place + 1}"
