"""Where a worker of a fleet listens, and where it is told that the router is.

    on this machine                the router's host for its fleet; where that is all addresses,
                                   loopback
    on a node of a cluster         the node's own address; the router at that host, or, where that
                                   is all addresses, at our node's
    with an advertised host        the router's host for its fleet, on this machine alone

On a cluster it is decided at each launch: a worker may come back on a node that was not there.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.config import ServeOptions
from cluster.errors import ConfigError
from cluster.membership.reach import is_loopback, is_wildcard


@dataclass(frozen=True, slots=True)
class WorkerReach:
    """Of one worker, where it is started."""

    listens_on: str
    router_host: str

    def router_address(self, options: ServeOptions) -> str:
        """Where the router's fleet is told to speak to it: host:port."""
        return f"{self.router_host}:{options.router.workers_port}"


def fleet_host_of(options: ServeOptions) -> str:
    """Where the router speaks to its fleet, at a port apart from clients'. Workers that are all on
    this machine reach it at loopback, and nobody else does."""
    host = options.router.host
    has_others = options.launcher == "ray" or options.peers.advertise_host is not None
    near = host if has_others or is_loopback(host) else "127.0.0.1"
    return options.router.aside.fleet_host or near


def reach_on(options: ServeOptions) -> WorkerReach:
    """On this machine."""
    host = options.router.workers_host
    near = "127.0.0.1" if is_wildcard(host) else host
    return WorkerReach(near if options.peers.advertise_host is None else host, near)


def reach_at(options: ServeOptions, *, own: str, there: str) -> WorkerReach:
    """At the node `there` of a cluster in which ours is `own`. Raises ConfigError for a node from
    which the router, or a worker beside it, is not reached."""
    host = options.router.workers_host
    if there != own:
        check_reached(options, [there])
    elif is_loopback(host) or options.peers.advertise_host is not None:
        return reach_on(options)
    if is_wildcard(host):
        return WorkerReach(there, own)
    return WorkerReach(host if there == own else there, host)


def check_reached(options: ServeOptions, strangers: list[str]) -> None:
    """Raises ConfigError where workers at these addresses, none of which is our node's, and the
    rest of the fleet would not reach each other."""
    if options.peers.advertise_host is not None:
        raise ConfigError(
            "advertise_host is one address, and the Ray cluster's nodes have several; leave it out",
            param="advertise_host",
        )
    if is_loopback(options.router.workers_host):
        raise ConfigError(
            f"the Ray cluster has nodes at {', '.join(strangers)}, and workers there do not reach "
            f"a router at {options.router.workers_host}; add --host 0.0.0.0",
            param="host",
        )


def check_advertised(options: ServeOptions) -> None:
    """Raises ConfigError for an advertised host that nobody could reach."""
    host, advertised = options.router.workers_host, options.peers.advertise_host
    if advertised is None:
        return
    if is_wildcard(advertised):
        raise ConfigError(
            f"advertise_host is {advertised}; name one address of this machine",
            param="advertise_host",
        )
    if is_loopback(host) and not is_loopback(advertised):
        raise ConfigError(
            f"advertise_host is {advertised}, and nobody reaches the fleet there: it listens on "
            f"{host} only; add --host 0.0.0.0",
            param="advertise_host",
        )
