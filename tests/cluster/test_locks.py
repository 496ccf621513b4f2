"""A port that strangers reach has a lock, or its process does not start and says which and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.serve import serve_fleet, with_claimed_ports
from cluster.aside_options import AsideOptions
from cluster.common_options import PeerOptions, TlsOptions
from cluster.config import RouterOptions, ServeOptions, WorkerOptions
from cluster.errors import ConfigError
from cluster.join_token import JOIN_TOKEN
from cluster.locks import check_router, check_worker, has_strangers, warning_of_strangers
from cluster.supervisor.worker_reach import reach_on
from cluster.tls.fleet import FLEET_TLS

TOKEN = "of-this-fleet-alone"


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (JOIN_TOKEN, FLEET_TLS):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "localhost"])
def test_on_loopback_no_lock_is_asked_for(host: str) -> None:
    check_router(RouterOptions(host=host))
    check_worker(WorkerOptions(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.7", "router.pool"])
def test_a_router_that_others_reach_asks_clients_for_keys(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JOIN_TOKEN, TOKEN)
    named = f"--port 8001 and --grpc-port 50052 .* {host}: .*--api-keys.*--insecure"
    with pytest.raises(ConfigError, match=named):
        check_router(RouterOptions(host=host, port=8001, grpc_port=50052))
    check_router(RouterOptions(host=host, api_keys="keys.json", fleet_port=50053))
    tls = TlsOptions(tls_cert="cert.pem", tls_key="key.pem")
    check_router(RouterOptions(host=host, tls=tls, fleet_port=50053))


@pytest.mark.parametrize(
    ("lock", "warns"),
    [
        ({}, True),
        ({"api_keys": "keys.json"}, False),
        ({"insecure": True}, False),
        ({"host": "127.0.0.1"}, False),
    ],
)
def test_a_router_that_encrypts_and_asks_for_nothing_warns_that_anybody_may_ask(
    lock: dict[str, object], warns: bool
) -> None:
    tls = TlsOptions(tls_cert="cert.pem", tls_key="key.pem")
    options = RouterOptions(**{"host": "0.0.0.0", "tls": tls, "fleet_port": 50053, **lock})
    told = warning_of_strangers(options)
    assert (told is not None) is warns
    if told is not None:
        assert "anybody who reaches 0.0.0.0 may send requests" in told
        assert "--api-keys" in told and "--tls-client-ca" in told
    asks = replace(tls, tls_client_ca="ca.pem")
    assert warning_of_strangers(replace(options, tls=asks)) is None


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"host": "0.0.0.0", "api_keys": "keys.json"}, "--grpc-port 50051"),
        ({"host": "0.0.0.0", "api_keys": "keys.json", "fleet_port": 50053}, "--fleet-port 50053"),
        ({"aside": AsideOptions(fleet_host="0.0.0.0"), "fleet_port": 50053}, "--fleet-port 50053"),
    ],
)
def test_a_router_that_others_reach_asks_its_fleet_for_the_join_token(
    given: dict[str, Any], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=f"{named} would.*0.0.0.0.*{JOIN_TOKEN}.*--insecure"):
        check_router(RouterOptions(**given))
    monkeypatch.setenv(JOIN_TOKEN, TOKEN)
    check_router(RouterOptions(**{"fleet_port": 50053} | given))


def test_clients_and_the_fleet_share_a_port_on_loopback_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(JOIN_TOKEN, TOKEN)
    with pytest.raises(ConfigError, match=r"--grpc-port 50051 .* 0.0.0.0: give .* --fleet-port"):
        check_router(RouterOptions(host="0.0.0.0", api_keys="keys.json"))
    check_router(RouterOptions(api_keys="keys.json"))
    near = AsideOptions(fleet_host="127.0.0.1")
    options = RouterOptions(host="0.0.0.0", api_keys="keys.json", fleet_port=50053, aside=near)
    check_router(options)
    monkeypatch.delenv(JOIN_TOKEN)
    check_router(options)  # nobody but this machine reaches the fleet's
    for insecure in (False, True):
        with pytest.raises(ConfigError, match="--fleet-host 127.0.0.1 is of --fleet-port"):
            check_router(RouterOptions(aside=near, insecure=insecure))


@pytest.mark.parametrize(
    ("given", "may_come"),
    [
        ({}, False),
        ({"api_keys": "keys.json"}, True),
        ({"api_keys": "keys.json", "insecure": True}, True),
        ({"host": "0.0.0.0"}, True),
        ({"host": "0.0.0.0", "insecure": True}, False),
    ],
)
def test_strangers_come_where_keys_are_asked_for_or_others_reach_the_port(
    given: dict[str, Any], may_come: bool
) -> None:
    assert has_strangers(RouterOptions(**given)) is may_come


def test_a_worker_that_others_reach_asks_for_the_join_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = WorkerOptions(host="0.0.0.0", port=7001)
    with monkeypatch.context() as patched:
        patched.setenv(FLEET_TLS, "a folder, which is looked at elsewhere")
        check_worker(options)
    with pytest.raises(ConfigError, match=f"--port 7001 .*{JOIN_TOKEN}.*--insecure"):
        check_worker(options)
    monkeypatch.setenv(JOIN_TOKEN, TOKEN)
    check_worker(options)


def test_who_says_insecure_is_believed() -> None:
    check_router(RouterOptions(host="0.0.0.0", insecure=True))
    check_worker(WorkerOptions(host="0.0.0.0", insecure=True))


def test_a_fleet_that_nothing_locks_is_refused_before_anything_is_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPLITSERVE_HOME", str(tmp_path))
    monkeypatch.setenv(JOIN_TOKEN, TOKEN)  # serve sets it, and this puts it back
    options = ServeOptions(router=RouterOptions(host="0.0.0.0", port=0, grpc_port=0))
    with pytest.raises(ConfigError, match=r"--port \d+ and --grpc-port \d+ would"):
        serve_fleet(options)
    assert list(tmp_path.iterdir()) == []


def test_certificates_for_one_file_without_the_other_are_none() -> None:
    with pytest.raises(ConfigError, match="--tls-cert and --tls-key"):
        TlsOptions(tls_cert="cert.pem")
    with pytest.raises(ConfigError, match="--tls-client-ca needs --tls-cert"):
        TlsOptions(tls_client_ca="ca.pem")


def test_a_fleet_of_one_machine_takes_a_port_of_its_own_where_certificates_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = ServeOptions(router=RouterOptions(port=0, grpc_port=0))
    assert with_claimed_ports(options).router.fleet_port is None
    monkeypatch.setenv(FLEET_TLS, "a folder, which is looked at elsewhere")
    router = with_claimed_ports(options).router
    assert router.fleet_port not in (None, 0, router.port, router.grpc_port)
    check_router(router)


@pytest.mark.parametrize(
    ("given", "fleet_host"),
    [
        ({}, "127.0.0.1"),
        ({"aside": AsideOptions(fleet_host="127.0.0.2")}, "127.0.0.2"),
        ({"advertise_host": "10.0.0.7"}, "0.0.0.0"),
        ({"launcher": "ray"}, "0.0.0.0"),
    ],
)
def test_a_fleet_of_one_machine_is_spoken_to_on_loopback_whoever_reaches_its_clients_port(
    given: dict[str, Any], fleet_host: str
) -> None:
    aside = given.get("aside", AsideOptions())
    options = ServeOptions(
        router=RouterOptions(host="0.0.0.0", port=0, grpc_port=0, api_keys="k.json", aside=aside),
        peers=PeerOptions(advertise_host=given.get("advertise_host")),
        launcher=given.get("launcher", "local"),
    )
    options = with_claimed_ports(options)
    router = options.router
    assert router.fleet_port not in (None, router.port, router.grpc_port)
    assert (router.workers_host, router.host) == (fleet_host, "0.0.0.0")
    if fleet_host != "0.0.0.0":
        assert reach_on(options).router_address(options) == f"{fleet_host}:{router.fleet_port}"
        assert reach_on(options).listens_on == fleet_host


def test_a_port_of_metrics_is_a_free_one_where_it_is_0() -> None:
    aside = AsideOptions(fleet_metrics_port=0)
    options = ServeOptions(router=RouterOptions(port=0, grpc_port=0, aside=aside))
    router = with_claimed_ports(options).router
    assert router.aside.fleet_metrics_port and router.aside.fleet_host is None
    with pytest.raises(ConfigError, match="--port and --fleet-metrics-port are both 8000"):
        RouterOptions(aside=AsideOptions(fleet_metrics_port=8000))
