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
from urllib.parse import unquote

import psutil

from cluster.errors import ConfigError


def is_wildcard(host: str) -> bool:
    """True of "all addresses of this machine": somebody else's when another machine reads it."""
    address = _ip_of(host)
    return address is not None and address.is_unspecified


def is_loopback(host: str) -> bool:
    """True of what only processes of the same machine, or container, reach."""
    address = _ip_of(host)
    return host == "localhost" if address is None else address.is_loopback


def host_of(address: str) -> str:
    """Of host:port, or tcp://host:port."""
    return address.rpartition("/")[2].rpartition(":")[0].strip("[]")


def address_towards(router: str) -> str:
    """This machine's address that faces `router`, host:port. No packet is sent, but a name is
    looked up. Raises ConfigError where there is no way there."""
    host, _, port = router.rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))
            return str(probe.getsockname()[0])
    except (OSError, ValueError, OverflowError) as cause:
        raise ConfigError(
            f"the router's address {router} does not say at which of this machine's addresses the "
            f"fleet reaches this worker ({cause}); name it with --advertise-host",
            param="advertise_host",
        ) from cause


def is_of_this_machine(peer: str) -> bool:
    """Of a caller as gRPC names it, such as ipv4:10.0.0.7:4711."""
    kind, _, rest = peer.partition(":")
    address = _ip_of(host_of(unquote(rest)))
    if kind not in ("ipv4", "ipv6") or address is None or address.is_loopback:
        return True  # what is no internet address comes from here
    return str(address) in {
        found.address for interface in psutil.net_if_addrs().values() for found in interface
    }


def _ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """None for a name. An IPv4 address in IPv6's clothes is itself."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
