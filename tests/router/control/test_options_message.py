"""A router tells its options, and no password in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.common_options import StoreOptions, VllmOptions
from cluster.config import RouterOptions
from cluster.options import option_specs
from router.control.options_message import options_to_wire


def test_every_option_is_told_and_the_stores_password_is_not() -> None:
    options = RouterOptions(port=1, store=StoreOptions(store="redis://me:hunter22@h:1/0"))
    told = {each.name: json.loads(each.value) for each in options_to_wire(options).options}
    assert list(told) == list(option_specs(RouterOptions))
    assert (told["port"], told["fleet_port"], told["reserve_room"]) == (1, None, True)
    assert told["store"] == "redis://***@h:1/0"


def test_what_the_router_knows_to_be_secret_is_masked_wherever_it_stands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPLITSERVE_JOIN_TOKEN", "join-token-planted-0123")
    key = tmp_path / "key"
    key.write_text("planted-vllm-key\n")
    servers = VllmOptions(vllm="http://planted-vllm-key:8000", vllm_key_file=str(key))
    options = RouterOptions(api_keys="/x/join-token-planted-0123", vllm_servers=servers)
    told = " ".join(each.value for each in options_to_wire(options).options)
    assert "planted" not in told
