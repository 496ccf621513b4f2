"""Who calls, as a door counts its callers: by address, and at one address by connection."""

from __future__ import annotations

from ipaddress import IPv6Network

import msgspec

from cluster.membership.reach import IpAddress, ip_of, ip_of_peer

_HOST_BITS = 64
"""Of an IPv6 address, whoever has a network of its own may choose as many."""


class Caller(msgspec.Struct, frozen=True):
    """One connection."""

    address: str
    """Without the port, which is another one for each connection; of IPv6 the network. What is no
    internet address, such as a Unix socket's path, is itself."""
    connection: str


NOBODY = Caller("", "")
"""Whose work came by no connection: all of it has one turn."""


def caller_of(peer: str) -> Caller:
    """Of a peer as gRPC names it: ipv4:10.0.0.7:4711, ipv6:%5B::1%5D:4711, unix:/run/router."""
    ip = ip_of_peer(peer)
    return Caller(peer if ip is None else _address_of(ip), peer)


def caller_at(host: str, port: int) -> Caller:
    """Of a peer as its socket names it."""
    ip = ip_of(host)
    return Caller(host if ip is None else _address_of(ip), f"{host} {port}")


def _address_of(ip: IpAddress) -> str:
    if ip.version == 4:
        return str(ip)
    return str(IPv6Network((int(ip) >> _HOST_BITS << _HOST_BITS, 128 - _HOST_BITS)))
