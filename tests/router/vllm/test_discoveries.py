"""Which discovery an operator's words name."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.errors import ConfigError
from cluster.world import World
from router.store.names import StoreNames
from router.vllm.allowed_hosts import AllowedHosts
from router.vllm.discoveries import discovery_of
from router.vllm.discovery import StaticDiscovery
from router.vllm.pods.discovery import PodDiscovery

NAMES = StoreNames("splitserve", "model")
SHOWS_KEY = AllowedHosts("private", needs_tls=True)


def pods(folder: Path, scheme: str) -> str:
    server = f"server=https://10.0.0.1:6443&token={folder / 'token'}&ca={folder / 'ca'}"
    return f"kubernetes://chat/app=vllm?scheme={scheme}&{server}"


def test_pods_are_not_shown_a_key_in_clear(tmp_path: Path) -> None:
    """Whoever may label a pod would have it."""
    with pytest.raises(ConfigError, match="https only") as caught:
        discovery_of(pods(tmp_path, "http"), NAMES, World(), SHOWS_KEY)
    assert caught.value.param == "vllm_key_in_clear"
    for scheme, allowed in (("https", SHOWS_KEY), ("http", AllowedHosts("private"))):
        found = discovery_of(pods(tmp_path, scheme), NAMES, World(), allowed)
        assert isinstance(found, PodDiscovery)


def test_servers_that_an_operator_names_are_trusted_with_it() -> None:
    named = discovery_of("http://10.0.0.7:8000", NAMES, World(), SHOWS_KEY)
    assert isinstance(named, StaticDiscovery)
