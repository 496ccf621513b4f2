"""Names for the hosts of ranks: equal where ranks share memory and Unix sockets, and only there."""

from __future__ import annotations

from collections.abc import Mapping

from cluster.errors import ConfigError
from cluster.launcher.ray.machine import HostFacts


def names_of_hosts(facts: Mapping[int, HostFacts]) -> tuple[str, ...]:
    """By rank. The host's own name, with a number where several containers share it."""
    machines_by_name: dict[str, list[str]] = {}
    for rank in sorted(facts):
        machines = machines_by_name.setdefault(facts[rank].host_name, [])
        if facts[rank].machine not in machines:
            machines.append(facts[rank].machine)
    return tuple(_name(facts[rank], machines_by_name) for rank in sorted(facts))


def check_users(facts: Mapping[int, HostFacts]) -> None:
    """Ranks of one machine have its memory and sockets in common only as one user. Raises
    ConfigError for a Ray that another user runs."""
    users: dict[str, HostFacts] = {}
    for rank in sorted(facts):
        own, first = facts[rank], users.setdefault(facts[rank].machine, facts[rank])
        if own.uid != first.uid:
            raise ConfigError(
                f"the ranks of this engine on {own.host_name} would belong to the users "
                f"{first.uid} and {own.uid}, who share no memory; start Ray there as the user that "
                "runs splitserve, or use --rank-launcher processes",
                param="rank_launcher",
            )


def _name(facts: HostFacts, machines_by_name: Mapping[str, list[str]]) -> str:
    place = machines_by_name[facts.host_name].index(facts.machine)
    return facts.host_name if place == 0 else f"{facts.host_name}-{place + 1}"
