"""Callers are counted by address: a port is another one for each connection."""

from __future__ import annotations

import pytest

from router.front.caller import caller_at, caller_of


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.7:4711", "10.0.0.7"),
        ("ipv6:[2001:db8::1]:4711", "2001:db8::/64"),
        ("ipv6:%5B2001:db8::1%5D:4711", "2001:db8::/64"),
        ("ipv6:%5B2001:db8::ffff:1%5D:4712", "2001:db8::/64"),
        ("ipv6:%5B2001:db8:0:1::1%5D:4711", "2001:db8:0:1::/64"),
        ("ipv6:%5Bfe80::1%25eth0%5D:4711", "fe80::/64"),
        ("ipv6:%5B::ffff:10.0.0.7%5D:4711", "10.0.0.7"),
        ("unix:/run/router.sock", "unix:/run/router.sock"),
        ("unix:", "unix:"),
        ("unix-abstract:router%00one", "unix-abstract:router%00one"),
        ("", ""),
        ("ipv4:nonsense", "ipv4:nonsense"),
    ],
)
def test_a_peer_as_grpc_names_it_has_an_address_without_its_port(peer: str, address: str) -> None:
    caller = caller_of(peer)
    assert caller.address == address
    assert caller.connection == peer


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("", ""),
    ],
)
def test_a_peer_as_its_socket_names_it_is_the_same_address(host: str, address: str) -> None:
    caller = caller_at(host, 4711)
    assert caller.address == address
    assert caller != caller_at(host, 4712)
