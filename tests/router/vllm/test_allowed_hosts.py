"""Where servers that nobody named may be."""

from __future__ import annotations

import pytest

from cluster.errors import ConfigError
from router.vllm.allowed_hosts import PRIVATE, AllowedHosts
from router.vllm.server_address import vllm_addresses


@pytest.mark.parametrize(
    "host",
    [
        *("10.0.0.7", "172.31.1.1", "192.168.1.1", "100.64.0.1", "127.0.0.1", "::1", "fd00::7"),
        *("::ffff:10.0.0.7", "vllm-0", "localhost", "vllm-0.vllm.ns.svc", "box.local"),
        *("vllm-0.vllm.ns.svc.cluster.local", "d"),
    ],
)
def test_private_ones_are_allowed_unless_an_operator_says_otherwise(host: str) -> None:
    assert AllowedHosts(PRIVATE).has(host)
    assert not AllowedHosts("gpu.example.com").has(host)


@pytest.mark.parametrize(
    "host",
    [
        *("169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "8.8.8.8", "0.0.0.0", "::"),
        *("metadata.google.internal", "example.com", "svc.example.com", "mysvc.com", "x.notlocal"),
        *("2852039166", "0x7f.1", "0xa9fea9fe", "127.1", "169.254.43518", "1.local.2852039166"),
    ],
)
def test_others_and_addresses_in_disguise_are_not(host: str) -> None:
    assert not AllowedHosts(PRIVATE).has(host)


def test_networks_and_names_that_are_said_are_allowed_beside() -> None:
    allowed = AllowedHosts("private, 203.0.113.0/24, .gpu.example.com")
    for host in ("10.0.0.7", "203.0.113.9", "gpu.example.com", "a.GPU.example.com"):
        assert allowed.has(host)
    assert not allowed.has("203.0.114.1") and not allowed.has("notgpu.example.com")


@pytest.mark.parametrize("word", ["10.0.0.1/8", "http://a", "*", "a b"])
def test_a_word_that_is_neither_is_named(word: str) -> None:
    with pytest.raises(ConfigError, match="--vllm-allow") as caught:
        AllowedHosts(f"private,{word}")
    assert caught.value.param == "vllm_allow"


@pytest.mark.parametrize("url", ["http://10.0.0.7:8000", "https://10.0.0.7:8000"])
def test_a_key_is_shown_over_https_only(url: str) -> None:
    (address,) = vllm_addresses(url)
    AllowedHosts(PRIVATE).check(address)
    allowed = AllowedHosts(PRIVATE, needs_tls=True)
    if url.startswith("https"):
        allowed.check(address)
        return
    with pytest.raises(ConfigError, match="--vllm-key-in-clear"):
        allowed.check(address)


def test_nothing_is_sent_to_a_host_that_is_not_allowed() -> None:
    (address,) = vllm_addresses("https://203.0.113.9:8000")
    with pytest.raises(ConfigError, match=r"203\.0\.113\.9: --vllm-allow"):
        AllowedHosts(PRIVATE).check(address)
