"""A login that ends while a command waits: tokens of managed clusters do so within the hour."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from kubernetes.aio.config import incluster_config

from cli.exit_code import ExitCode
from cli.release import at_release
from cli.scale import ScaleRequest, scale
from cluster.deadline import Deadline
from cluster.errors import LoginLost, WorkerLost
from cluster.scaling import kubernetes_api, kubernetes_login
from cluster.scaling.kubeconfig import Login
from cluster.scaling.kubernetes import KubernetesScaler
from cluster.scaling.kubernetes_api import ApiServer, DeploymentsApi
from cluster.scaling.kubernetes_login import (
    AFTER_LIMIT_S,
    MOST_AFTER_LIMIT_S,
    MOST_RETRY_S,
    RETRY_S,
    opened_client,
)
from cluster.scaling.scaler import ScaleOrder, ScalePlan, wait_until_ready
from tests.cluster.scaling.played_api_server import (
    LoginPlugin,
    TokenServer,
    by_plugin,
    is_kubeconfig,
    token_server,
    write_kubeconfig,
)
from tests.virtual_time import VirtualTime

PATIENCE_S = 60.0
"""Never waited for: it is there to end a test that hangs."""


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server() as played:
        yield played


@pytest.fixture
def plugin(server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoginPlugin:
    made = LoginPlugin(tmp_path)
    made.gives("first")
    write_kubeconfig(tmp_path / "config", server.port, by_plugin(made))
    is_kubeconfig(tmp_path / "config", monkeypatch)
    return made


@pytest.fixture
async def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
async def api(plugin: LoginPlugin, time: VirtualTime) -> AsyncIterator[ApiServer]:
    made = ApiServer("chat", await opened_client(time))
    yield made
    await made.close()


async def size_of(api: ApiServer) -> int:
    (state,) = await KubernetesScaler(api, "chat").pools()
    return state.num_wanted


async def test_a_token_that_ends_in_a_wait_is_renewed_and_the_wait_goes_on(
    server: TokenServer, plugin: LoginPlugin, api: ApiServer
) -> None:
    async def sleep(seconds: float) -> None:
        if server.known == {"first"}:
            server.known = {"second"}
            plugin.gives("second")
        else:
            server.get_ready()

    scaler = KubernetesScaler(api, "chat")
    await scaler.scale(ScaleOrder(pool="decode", size=5))
    await wait_until_ready(scaler, {"decode": 5}, Deadline.after(PATIENCE_S), sleep)
    assert server.patched == [5] and plugin.num_runs == 2
    assert {token for _, token in server.asked} == {"first", "second"}


async def test_a_patch_that_meets_a_token_of_yesterday_is_sent_again_once(
    server: TokenServer, plugin: LoginPlugin, api: ApiServer
) -> None:
    (pool,) = await api.pools("")
    server.known = {"second"}
    plugin.gives("second")
    await api.patch_scale(pool, 4, is_dry_run=False)
    assert server.patched == [4]
    assert server.asked[-2:] == [("PATCH", "first"), ("PATCH", "second")]


async def test_many_calls_at_once_run_the_plugin_once(
    server: TokenServer, plugin: LoginPlugin, api: ApiServer
) -> None:
    server.known = {"second"}
    plugin.gives("second")
    assert await asyncio.gather(*(size_of(api) for _ in range(6))) == [3] * 6
    assert plugin.num_runs == 2


async def test_a_token_that_is_about_to_end_is_renewed_before_it_is_shown(
    server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, server.known = LoginPlugin(tmp_path), {"first", "second"}
    write_kubeconfig(tmp_path / "config", server.port, by_plugin(plugin))
    is_kubeconfig(tmp_path / "config", monkeypatch)
    now = datetime.now(UTC)
    plugin.gives("first", expirationTimestamp=(now + timedelta(seconds=1)).isoformat())
    api = await ApiServer.opened("chat")
    plugin.gives("second", expirationTimestamp=(now + timedelta(days=1)).isoformat())
    assert [await size_of(api), await size_of(api)] == [3, 3]
    await api.close()
    assert plugin.num_runs == 2 and {token for _, token in server.asked} == {"second"}


async def test_a_plugin_that_fails_is_asked_again_later_and_nobody_is_refused_meanwhile(
    server: TokenServer, plugin: LoginPlugin, api: ApiServer, time: VirtualTime
) -> None:
    server.known = {"second"}
    plugin.gives(None)
    for _ in range(3):
        with pytest.raises(WorkerLost, match=r"does not know who asks \(Unauthorized\)"):
            await size_of(api)
    assert plugin.num_runs == 2, "a look a second is no run of the plugin a second"
    assert {token for _, token in server.asked} == {"first"}, "none is asked without a token"
    plugin.gives("second")
    await time.advance(RETRY_S)
    assert await size_of(api) == 3


async def test_the_cluster_stays_the_one_of_the_beginning(
    server: TokenServer, plugin: LoginPlugin, api: ApiServer, tmp_path: Path
) -> None:
    server.known = {"second"}
    plugin.gives("second")
    write_kubeconfig(tmp_path / "config", server.port, by_plugin(plugin), current="other")
    assert await size_of(api) == 3
    assert "their" not in {token for _, token in server.asked}


async def test_of_a_kubeconfig_that_says_nothing_new_nothing_is_sent_twice(
    server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_kubeconfig(tmp_path / "config", server.port, {"token": "of old"})
    is_kubeconfig(tmp_path / "config", monkeypatch)
    api = await ApiServer.opened("chat")
    with pytest.raises(WorkerLost, match="kubectl auth whoami"):
        await size_of(api)
    await api.close()
    assert server.asked == [("GET", "of old")]


@pytest.mark.parametrize("half", ["", "users: [", "contexts: []"])
async def test_a_kubeconfig_that_is_half_written_is_read_again_later(
    half: str,
    server: TokenServer,
    plugin: LoginPlugin,
    api: ApiServer,
    time: VirtualTime,
    tmp_path: Path,
) -> None:
    server.known = {"second"}
    whole = (tmp_path / "config").read_text()
    (tmp_path / "config").write_text(half)
    with pytest.raises(LoginLost):
        await size_of(api)
    (tmp_path / "config").write_text(whole)
    plugin.gives("second")
    await time.advance(RETRY_S)
    assert await size_of(api) == 3


async def test_what_was_known_before_the_end_is_read_again_for_the_first_401_after_it(
    server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, server.known = LoginPlugin(tmp_path), {"first"}
    write_kubeconfig(tmp_path / "config", server.port, by_plugin(plugin))
    is_kubeconfig(tmp_path / "config", monkeypatch)
    ends_at = datetime.now(UTC) + timedelta(seconds=1)
    plugin.gives("first", expirationTimestamp=ends_at.isoformat())
    api = ApiServer("chat", await opened_client(VirtualTime()))
    assert [await size_of(api), await size_of(api)] == [3, 3]
    assert plugin.num_runs == 2, "once before the end: it has kept what it gave"
    server.known = {"second"}
    plugin.gives("second")
    (pool,) = await api.pools("")
    await api.patch_scale(pool, 4, is_dry_run=False)
    await api.close()
    assert server.patched == [4]


async def test_readings_that_fail_are_begun_the_more_seldom_the_more_there_were(
    server: TokenServer, api: ApiServer, time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.known = set()
    await size_of_nobody(api)
    at_s: list[float] = []

    async def fails(context: str | None, *, is_alone: bool) -> Login:
        at_s.append(time())
        raise OSError("the file is away")

    monkeypatch.setattr(kubernetes_login, "read_login", fails)
    for _ in range(200):
        await time.advance(1.0)
        await size_of_nobody(api)
    gaps = [later - before for before, later in itertools.pairwise(at_s)]
    assert gaps == [2 * RETRY_S, 4 * RETRY_S, MOST_RETRY_S, MOST_RETRY_S]


async def test_a_plugin_that_takes_too_long_rests_from_its_end_on_longer_each_time(
    server: TokenServer, api: ApiServer, time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.known = set()
    at_s: list[float] = []
    took_s = 60.0

    async def waits(context: str | None, *, is_alone: bool) -> Login:
        assert is_alone, "it would ask somebody"
        at_s.append(time())
        time.now_s += took_s  # it waits for a browser
        return await asyncio.Future()

    monkeypatch.setattr(kubernetes_login, "read_login", waits)
    monkeypatch.setattr(kubernetes_login, "READ_LIMIT_S", 0.01)
    end_s = time() + 3720.0
    while time() < end_s:
        await size_of_nobody(api)
        await time.advance(10.0)
    rests = [later - before - took_s for before, later in itertools.pairwise(at_s)]
    assert rests[:4] == [AFTER_LIMIT_S * 2**number for number in range(4)]
    assert set(rests[4:]) == {MOST_AFTER_LIMIT_S} and len(at_s) == 7


async def size_of_nobody(api: ApiServer) -> None:
    with pytest.raises(LoginLost):
        await size_of(api)


async def test_a_certificate_of_a_plugin_is_renewed_by_new_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, plugin = trustme.CA(), LoginPlugin(tmp_path)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))

    def gives(name: str) -> None:
        issued = authority.issue_cert(f"{name}@example.com", common_name=name)
        (certificate,) = issued.cert_chain_pems
        key = issued.private_key_pem.bytes().decode()
        plugin.says({"clientCertificateData": certificate.bytes().decode(), "clientKeyData": key})

    gives("first")
    with token_server(authority) as server:
        user = by_plugin(plugin)
        config = tmp_path / "config"
        write_kubeconfig(config, server.port, user, authority=tmp_path / "ca.crt")
        is_kubeconfig(config, monkeypatch)
        api = await ApiServer.opened("chat")
        assert await size_of(api) == 3
        server.known = {"second"}
        gives("second")
        assert await size_of(api) == 3
        await api.close()
    assert [name for _, name in server.asked if name == "first"]
    assert server.asked[-1] == ("GET", "second") and plugin.num_runs == 2


async def test_the_account_of_a_pod_is_read_again_when_its_token_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    (tmp_path / "token").write_text("first")
    is_kubeconfig(tmp_path / "none", monkeypatch)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(kubernetes_api, "OWN_NAMESPACE", tmp_path / "none")
    with token_server(authority) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        api = await ApiServer.opened("chat")
        assert await size_of(api) == 3
        server.known = {"second"}
        (tmp_path / "token").write_text("second")
        assert await size_of(api) == 3
        await api.close()
    assert {token for _, token in server.asked} == {"first", "second"}


async def test_of_a_wait_that_loses_its_login_nobody_says_that_nothing_was_changed(
    server: TokenServer, plugin: LoginPlugin, api: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    class ForgetsAfterPatch(KubernetesScaler):
        async def scale(self, order: ScaleOrder) -> ScalePlan:
            plan = await super().scale(order)
            if not order.is_dry_run:
                server.known = set()
                plugin.gives(None)
            return plan

    request = ScaleRequest(sizes={"decode": 5}, is_agreed=True, waits=True, deadline_s=0.0)
    with pytest.raises(WorkerLost):
        await scale(ForgetsAfterPatch(api, "chat"), request)
    assert 5 in server.patched
    said = capsys.readouterr().err
    assert "begun, and not seen to its end" in said and "refused" not in said


def test_a_command_without_a_login_is_told_so_and_is_not_refused(
    server: TokenServer, plugin: LoginPlugin, capsys: pytest.CaptureFixture[str]
) -> None:
    server.known = set()
    assert at_release("chat/chat", looks) is ExitCode.UNREACHABLE
    said = capsys.readouterr().err
    assert "does not know who asks" in said and "refused" not in said


NOBODY_GIVES = pytest.mark.parametrize(
    ("status", "words"),
    [
        (None, "the session is over: log in"),
        ({"token": ""}, "neither a token nor a certificate"),
        ({"clientCertificateData": "PEM"}, "neither a token nor a certificate with its key"),
    ],
)


@NOBODY_GIVES
def test_a_session_that_is_over_when_a_command_starts_is_told_so_and_is_not_refused(
    status: dict[str, str] | None,
    words: str,
    server: TokenServer,
    plugin: LoginPlugin,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plugin.says(status)
    assert at_release("chat/chat", looks) is ExitCode.UNREACHABLE
    said = capsys.readouterr().err
    assert words in said and "log in, and try again" in said and "refused" not in said
    assert server.asked == [], "nobody is asked for nobody"


def test_a_plugin_that_is_not_there_is_told_as_a_login_that_is_missing(
    server: TokenServer, plugin: LoginPlugin, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin.path.unlink()
    assert at_release("chat/chat", looks) is ExitCode.UNREACHABLE
    assert "No such file" in capsys.readouterr().err


def test_a_users_own_token_stands_in_for_a_plugin_that_fails(
    server: TokenServer, plugin: LoginPlugin, tmp_path: Path
) -> None:
    plugin.says(None)
    user = by_plugin(plugin) | {"token": "first"}
    write_kubeconfig(tmp_path / "config", server.port, user)
    assert at_release("chat/chat", looks) is ExitCode.OK


def test_who_shows_nothing_and_is_forbidden_everything_is_not_logged_in(
    server: TokenServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_kubeconfig(tmp_path / "config", server.port, {})
    is_kubeconfig(tmp_path / "config", monkeypatch)
    assert at_release("chat/chat", looks) is ExitCode.UNREACHABLE
    said = capsys.readouterr().err
    assert "system:anonymous" in said and "does not know who asks" in said
    assert "refused" not in said


async def looks(api: DeploymentsApi, release: str) -> ExitCode:
    await KubernetesScaler(api, release).pools()
    return ExitCode.OK
