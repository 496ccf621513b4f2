"""What a router counts: for operators, wherever strangers come to its clients' port."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from cluster.aside_options import AsideOptions
from cluster.common_options import PageOptions
from cluster.errors import ConfigError, Unauthenticated
from cluster.join_token import JOIN_TOKEN, JOIN_TOKEN_TOO
from router.front.operators import OperatorsPages
from tests.free_ports import free_port
from tests.router.front_fakes import says
from tests.router.test_keys_at_the_doors import Keys
from tests.router.test_router_process import Running, running_router

TOKEN = "of-this-fleet-alone"
NEXT = "next-of-this-fleet-alone"
PAGES = ("/metrics", "/version")
PROBES = ("/live", "/health", "/ping")


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keys:
    monkeypatch.setenv(JOIN_TOKEN, TOKEN)
    return Keys(tmp_path / "keys.json")


def shown(router: Running, what: str | None) -> httpx.AsyncClient:
    headers = {} if what is None else {"Authorization": f"Bearer {what}"}
    return httpx.AsyncClient(base_url=f"http://{router.addresses.http}", headers=headers)


async def statuses(client: httpx.AsyncClient, *paths: str) -> list[int]:
    return [(await client.get(path)).status_code for path in paths]


async def test_with_keys_a_stranger_learns_neither_what_is_counted_nor_the_version(
    keys: Keys,
) -> None:
    async with running_router(says("ok"), api_keys=str(keys.path)) as router:
        for guess in (None, "sk-00000000-guess", TOKEN[:-1], f"{TOKEN}x"):
            async with shown(router, guess) as stranger:
                for page in PAGES:
                    refused = await stranger.get(page)
                    assert refused.status_code == 401 and "fleet_starts" not in refused.text
                assert await statuses(stranger, *PROBES) == [200] * 3


async def test_the_join_token_shows_both_and_a_client_s_key_the_version(keys: Keys) -> None:
    async with running_router(says("ok"), api_keys=str(keys.path)) as router:
        async with shown(router, TOKEN) as operator:
            assert await statuses(operator, *PAGES) == [200, 200]
            assert (await operator.get("/v1/models")).status_code == 401, "it is no key"
        async with shown(router, keys.acme) as client:
            assert await statuses(client, *PAGES) == [401, 200]


async def test_while_the_join_token_is_changed_both_show_them(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JOIN_TOKEN_TOO, NEXT)
    async with running_router(says("ok"), api_keys=str(keys.path)) as router:
        for token in (TOKEN, NEXT):
            async with shown(router, token) as operator:
                assert await statuses(operator, *PAGES) == [200, 200]


async def test_on_loopback_without_keys_they_are_open() -> None:
    async with running_router(says("ok")) as router, shown(router, None) as anybody:
        assert await statuses(anybody, *PAGES, *PROBES) == [200] * 5


async def test_at_the_port_for_prometheus_no_token_is_asked_for_and_nothing_else_told(
    keys: Keys,
) -> None:
    port = free_port("127.0.0.2")
    aside = AsideOptions(fleet_host="127.0.0.2", fleet_metrics_port=port)
    apart = free_port("127.0.0.2")
    options = {"api_keys": str(keys.path), "aside": aside, "fleet_port": apart}
    async with (
        running_router(says("ok"), **options),
        httpx.AsyncClient(base_url=f"http://127.0.0.2:{port}") as prometheus,
    ):
        page = await prometheus.get("/metrics")
        assert page.status_code == 200 and "fleet_starts_total 1.0" in page.text
        assert await statuses(prometheus, "/live", "/health") == [200, 200]
        others = ("/", "/v1/models", "/version", "/metrics/", "/none")
        assert await statuses(prometheus, *others) == [404] * 5
        body = {"prompt": "Hi"}
        assert (await prometheus.post("/v1/completions", json=body)).status_code == 404


async def test_a_port_for_prometheus_that_is_taken_is_named() -> None:
    page = free_port()
    with pytest.raises(ConfigError, match="--page-port and --fleet-metrics-port are both"):
        async with running_router(
            says("ok"),
            page=PageOptions(page_port=page),
            aside=AsideOptions(fleet_metrics_port=page),
        ):
            pass


def test_who_has_no_token_to_compare_with_lets_nobody_in() -> None:
    shut = OperatorsPages(has_strangers=True)
    for guess in (None, "Bearer ", "Bearer None", f"Bearer {TOKEN}"):
        with pytest.raises(Unauthenticated, match="--fleet-metrics-port"):
            shut.check(guess)
    locked = OperatorsPages(has_strangers=True, tokens=(TOKEN, NEXT))
    locked.check(f"bearer  {TOKEN}")
    locked.check(f"Bearer {NEXT}")
    for guess in (TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN} x"):
        assert not locked.are_open_to(guess)
    OperatorsPages().check(None)
