"""At which address others reach a worker.

    what it listens on      what it tells the fleet
    10.0.0.7                10.0.0.7
    0.0.0.0                 the address of its own that faces the router
    anything                --advertise-host, where that is given

0.0.0.0 and 127.0.0.1 mean another machine wherever they are read on another machine.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote

import psutil

from cluster.errors import ConfigError

_EACH_ADDRESS = "dns+"

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_wildcard(host: str) -> bool:
    """True of "all addresses of this machine": somebody else's when another machine reads it."""
    address = ip_of(host)
    return address is not None and address.is_unspecified


def is_loopback(host: str) -> bool:
    """True of what only processes of the same machine, or container, reach."""
    address = ip_of(host)
    return host == "localhost" if address is None else address.is_loopback


def host_of(address: str) -> str:
    """Of host:port, or tcp://host:port."""
    return address.rpartition("/")[2].rpartition(":")[0].strip("[]")


@dataclass(frozen=True, slots=True)
class RouterPlace:
    """Where a router listens; the name may be one that nobody knows yet."""

    host: str
    port: int
    is_each_address: bool = False
    """A router at every address that the name has, and they may change: a headless Service."""

    @classmethod
    def parse(cls, router: str) -> RouterPlace:
        """From host:port, or dns+host:port for a router at each address of the name. Raises
        ConfigError for what never names a place that a worker reaches."""
        host, _, port = router.removeprefix(_EACH_ADDRESS).rpartition(":")
        is_port = port.isascii() and port.isdigit() and 0 < int(port) < 65_536
        if not _may_be_known(host) or not is_port:
            raise ConfigError(
                f"the router's address is {router!r}; write host:port, with an IPv4 address or a "
                "name of one, or dns+host:port for a router at each address of a name",
                param="router",
            )
        return cls(host, int(port), router.startswith(_EACH_ADDRESS))

    @classmethod
    def parse_all(cls, routers: str) -> tuple[RouterPlace, ...]:
        """From host:port,host:port,... Raises ConfigError, also for one that is named twice."""
        places = tuple(cls.parse(router.strip()) for router in routers.split(","))
        if len(set(places)) < len(places):
            raise ConfigError(f"a router is named twice in {routers!r}", param="router")
        return places

    def __str__(self) -> str:
        prefix = _EACH_ADDRESS if self.is_each_address else ""
        return f"{prefix}{self.host}:{self.port}"


def address_towards(
    host: str, port: int, *, who: str = "workers reach a router", param: str | None = "router"
) -> str:
    """This machine's address that faces another place. No packet is sent, but a name is looked up:
    not for an event loop.

    Raises OSError where there is no way there, or none yet; ConfigError for a name that stands for
    IPv6 addresses alone: it says `who` cannot do so, by the fault of which option.
    """
    try:
        found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_DGRAM)
    except socket.gaierror:
        socket.getaddrinfo(host, port, socket.AF_INET6, socket.SOCK_DGRAM)  # raises the same
        raise ConfigError(
            f"{host} has IPv6 addresses only, and {who} over IPv4; give it an IPv4 address",
            param=param,
        ) from None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(found[0][4])
        return str(probe.getsockname()[0])


def _may_be_known(host: str) -> bool:
    """Not so of what no name server could be asked for, nor of an IPv6 address."""
    try:
        return bool(host.encode("idna")) and ":" not in host
    except UnicodeError:
        return False


def ip_of_peer(peer: str) -> IpAddress | None:
    """Of a caller as gRPC names it, such as ipv4:10.0.0.7:4711; None where that is no internet
    address."""
    kind, _, rest = peer.partition(":")
    return ip_of(host_of(unquote(rest))) if kind in ("ipv4", "ipv6") else None


class OwnMachine:
    """Which addresses are this machine's, as they were when first asked for: for one decision."""

    def calls(self, peer: str) -> bool:
        """Whether a caller, as gRPC names it, is of this machine."""
        address = ip_of_peer(peer)
        if address is None or address.is_loopback:
            return True  # what is no internet address comes from here
        return str(address) in self._addresses

    def has(self, host: str) -> bool:
        """True of an address of its own. A name, but for this machine's own, counts as one of
        another: to look it up would take time."""
        address = ip_of(host)
        if address is None:
            own = socket.gethostname().casefold()
            return host.casefold() in ("localhost", "", own, own.partition(".")[0])
        is_own = address.is_loopback or address.is_unspecified
        return is_own or str(address) in self._addresses

    @cached_property
    def _addresses(self) -> frozenset[str]:
        """Of all its interfaces; to ask the system takes a part of a millisecond."""
        interfaces = psutil.net_if_addrs().values()
        return frozenset(found.address for interface in interfaces for found in interface)


def ip_of(host: str) -> IpAddress | None:
    """None for a name. An IPv4 address in IPv6's clothes is itself."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
