"""Which addresses mean something on another machine."""

from __future__ import annotations

import socket

import psutil
import pytest

from cluster.errors import ConfigError
from cluster.membership.reach import (
    OwnMachine,
    RouterPlace,
    address_towards,
    host_of,
    is_loopback,
    is_wildcard,
)


@pytest.mark.parametrize(
    ("address", "host", "wildcard", "loopback"),
    [
        ("0.0.0.0:1", "0.0.0.0", True, False),
        ("tcp://0.0.0.0:1", "0.0.0.0", True, False),
        ("[::]:1", "::", True, False),
        ("127.0.0.1:1", "127.0.0.1", False, True),
        ("tcp://[::1]:1", "::1", False, True),
        ("[::ffff:127.0.0.1]:1", "::ffff:127.0.0.1", False, True),
        ("localhost:1", "localhost", False, True),
        ("10.0.0.7:1", "10.0.0.7", False, False),
        ("decode-7.pool:1", "decode-7.pool", False, False),
        ("", "", False, False),
    ],
)
def test_wildcards_and_loopback_are_known_in_every_spelling(
    address: str, host: str, wildcard: bool, loopback: bool
) -> None:
    assert host_of(address) == host
    assert (is_wildcard(host), is_loopback(host)) == (wildcard, loopback)


def test_the_address_that_faces_a_router_is_one_of_this_machine_s() -> None:
    assert address_towards("127.0.0.1", 50051) == "127.0.0.1"


@pytest.mark.parametrize("router", ["router", "router.default.svc"])
def test_a_router_whose_name_is_not_known_yet_is_no_mistake_of_the_operator(
    router: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody_knows(*asked: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody_knows)
    with pytest.raises(OSError, match="not known"):
        address_towards(router, 50051)


@pytest.mark.parametrize(
    "router",
    ["127.0.0.1", "127.0.0.1:port", "r:99999", "r:0", "r:-1", "r:", ":5", "[::1]:5", "a..b:5"],
)
def test_what_names_no_place_is_refused_at_once(router: str) -> None:
    with pytest.raises(ConfigError, match="write host:port") as refused:
        RouterPlace.parse(router)
    assert refused.value.param == "router"


def test_who_calls_from_this_machine_is_known_by_its_address() -> None:
    own = [
        found.address
        for interface in psutil.net_if_addrs().values()
        for found in interface
        if found.family is socket.AF_INET
    ]
    here = OwnMachine()
    assert own and all(here.calls(f"ipv4:{address}:4711") for address in own)
    assert here.calls("ipv6:%5B::1%5D:4711")
    assert here.calls("unix:/tmp/socket")
    assert not here.calls("ipv4:203.0.113.9:4711")
    assert not here.calls("ipv6:%5B2001:db8::9%5D:4711")


def test_a_name_with_ipv6_addresses_only_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_ipv6(host: str, port: int, family: int, kind: int) -> list[object]:
        if family == socket.AF_INET:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [object()]

    monkeypatch.setattr(socket, "getaddrinfo", only_ipv6)
    with pytest.raises(ConfigError, match="router6 has IPv6 addresses only"):
        address_towards("router6", 50051)


@pytest.mark.parametrize(
    ("host", "own"),
    [("node1", True), ("NODE1.example.com", True), ("LOCALHOST", True), ("node2", False)],
)
def test_a_machine_s_own_name_is_known_in_every_spelling(
    host: str, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node1.Example.com")
    assert OwnMachine().has(host) == own
