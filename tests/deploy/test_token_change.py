"""Pods take a second join token from the fleet's secret, where it has one."""

from __future__ import annotations

from tests.deploy.chart import rendered

_TOO = "SPLITSERVE_JOIN_TOKEN_TOO"


def test_whoever_is_called_by_others_of_the_fleet_may_have_a_second_token() -> None:
    release = rendered({"fleet": {"existingSecret": "ours"}})
    for name in ("demo-router", "demo-prefill", "demo-decode"):
        (item,) = [item for item in release.env(name) if item["name"] == _TOO]
        key = {"name": "ours", "key": "join-token-too", "optional": True}
        assert item["valueFrom"]["secretKeyRef"] == key
