"""Where a bundle asks a router what it counts, and whom it shows the join token."""

from __future__ import annotations

from typing import Any

import pytest

from cli.bundle.parts import _metrics_page
from cluster.join_token import JOIN_TOKEN
from cluster.tls.fleet import FLEET_TLS

TOKEN = "of-this-fleet-alone"
SHOWN = {"Authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    ("told", "url", "headers"),
    [
        ({"port": 8000, "fleet_metrics_port": 9400}, "http://10.0.0.7:9400/metrics", {}),
        ({"port": 8000, "host": "0.0.0.0"}, "http://10.0.0.7:8000/metrics", SHOWN),
        ({"port": 8000, "host": "10.0.0.9"}, "http://10.0.0.9:8000/metrics", SHOWN),
        ({"port": 8000, "tls_cert": "c.pem"}, "https://10.0.0.7:8000/metrics", SHOWN),
    ],
)
def test_it_asks_at_the_port_for_prometheus_or_shows_the_token(
    told: dict[str, Any], url: str, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JOIN_TOKEN, TOKEN)
    monkeypatch.delenv(FLEET_TLS, raising=False)
    assert _metrics_page(told, "10.0.0.7") == (url, headers)


def test_a_token_that_certificates_hide_among_the_fleet_is_not_shown_in_the_clear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(JOIN_TOKEN, TOKEN)
    monkeypatch.setenv(FLEET_TLS, "a folder, which is looked at elsewhere")
    assert _metrics_page({"port": 8000}, "10.0.0.7")[1] == {}
    assert _metrics_page({"port": 8000}, "127.0.0.1")[1] == SHOWN
    assert _metrics_page({"port": 8000, "tls_cert": "c"}, "10.0.0.7")[1] == SHOWN
