"""Where the page listens, and what locks it."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import httpx
import pytest

from cluster.common_options import PageOptions, TlsOptions
from cluster.config import RouterOptions
from cluster.errors import ConfigError
from cluster.join_token import JOIN_TOKEN
from cluster.locks import check_router
from cluster.process.background import nothing_needed
from cluster.process.loop_share import LoopShare
from cluster.world import World
from router.page.listener import PageListener
from tests.cluster.tls.authority import Authority
from tests.router.page.staged import lasting_plane, page_of

TOKEN = "a-token-of-this-fleet"
ELSEWHERE = PageOptions(page_port=8090, page_host="0.0.0.0")


async def test_without_an_option_there_is_no_page() -> None:
    async with lasting_plane() as plane:
        assert PageListener.of(RouterOptions(), plane, "m", World(), LoopShare()) is None


async def test_a_taken_port_is_told_with_its_option() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        options = RouterOptions(page=PageOptions(page_port=port))
        async with lasting_plane() as plane:
            listener = PageListener.of(options, plane, "m", World(), LoopShare())
            assert listener is not None
            with pytest.raises(ConfigError, match=f"--page-port: .*:{port}"):
                await listener.start(lambda: False, nothing_needed)


def test_a_page_that_others_reach_needs_the_token_and_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(JOIN_TOKEN, raising=False)
    check_router(RouterOptions(page=PageOptions(page_port=8090)))
    for tls in (TlsOptions(), TlsOptions(tls_cert="c.pem", tls_key="k.pem")):
        with pytest.raises(ConfigError, match="--page-port 8090 would be open to every stranger"):
            check_router(RouterOptions(page=ELSEWHERE, tls=tls, fleet_port=50052))
    monkeypatch.setenv(JOIN_TOKEN, TOKEN)
    with pytest.raises(ConfigError, match="--tls-cert"):
        check_router(RouterOptions(page=ELSEWHERE))
    tls = TlsOptions(tls_cert="c.pem", tls_key="k.pem")
    check_router(RouterOptions(page=ELSEWHERE, tls=tls, fleet_port=50052))
    check_router(RouterOptions(page=ELSEWHERE, insecure=True))


def test_a_port_has_one_use() -> None:
    with pytest.raises(ConfigError, match="--port and --page-port are both 8000"):
        RouterOptions(page=PageOptions(page_port=8000))


async def test_elsewhere_it_speaks_tls_and_its_cookie_is_kept_from_the_clear(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On all addresses of this machine, as others reach it."""
    monkeypatch.setenv(JOIN_TOKEN, TOKEN)
    own = Authority().fill(tmp_path, "127.0.0.1")
    tls = TlsOptions(tls_cert=str(own / "cert.pem"), tls_key=str(own / "key.pem"))
    verify = ssl.create_default_context(cafile=own / "ca.pem")
    async with lasting_plane() as plane, page_of(plane, host="0.0.0.0", tls=tls) as page:
        url = page.url.replace("0.0.0.0", "127.0.0.1")
        assert url.startswith("https://")
        async with httpx.AsyncClient(base_url=url, verify=verify, timeout=30) as client:
            assert (await client.get("/session")).json()["sight"] == "nothing"
            assert (await client.get("/events")).status_code == 401
            answer = await client.post("/session", json={"token": TOKEN})
            assert "; Secure" in answer.headers["set-cookie"]
            assert (await client.get("/session")).json()["sight"] == "names"
