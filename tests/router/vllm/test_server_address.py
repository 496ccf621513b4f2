"""The servers that an operator names."""

from __future__ import annotations

import pytest

from cluster.errors import ConfigError
from cluster.identity import Role
from router.vllm.server_address import VllmRole, vllm_addresses


def test_words_after_a_url_are_its_own() -> None:
    prefill, decode, both = vllm_addresses(
        "http://p:8100,role=prefill,lease=6, http://d:8200,role=decode,https://a:8300"
    )
    assert (prefill.role, prefill.lease_s, prefill.fleet_role) == (
        VllmRole.PREFILL,
        6.0,
        Role.PREFILL,
    )
    assert (decode.url, decode.host_port, decode.lease_s) == ("http://d:8200", "d:8200", 30.0)
    assert (both.role, both.fleet_role, both.worker_id) == (
        VllmRole.BOTH,
        Role.DECODE,
        "vllm-a:8300",
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("role=prefill", "'role=prefill'"),
        ("http://a", "'http://a'"),
        ("ftp://a:1", "'ftp://a:1'"),
        ("http://a b:1", "no name and no address"),
        ("http://[fe80::1%25eth0]:1", "no name and no address"),
        ("http://a:99999", "'http://a:99999'"),
        ("http://a:1/v1", "'http://a:1/v1'"),
        ("http://me:secret@a:1", "no path, query or user"),
        ("http://a:1,role=encode", "'role=encode'"),
        ("http://a:1,lease=nan", "'lease=nan'"),
        ("http://a:1,lease=0", "'lease=0'"),
        ("http://a:1,lease=1e-9", "'lease=1e-9'"),
        ("http://a:1,lease=3601", "1 to 3600"),
        ("http://a:1,https://a:1", "named twice"),
        (" , ", "0 servers"),
    ],
)
def test_what_is_wrong_is_named(text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        vllm_addresses(text)
    assert caught.value.param == "vllm"


def test_an_ipv6_address_is_written_in_brackets() -> None:
    (address,) = vllm_addresses("http://[::1]:8100")
    assert (address.url, address.host_port) == ("http://[::1]:8100", "[::1]:8100")
