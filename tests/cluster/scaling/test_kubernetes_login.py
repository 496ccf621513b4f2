"""A login that ends while a command waits: tokens of managed clusters do so within the hour."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.exit_code import ExitCode
from cli.release import at_release
from cli.scale import ScaleRequest, scale
from cluster.deadline import Deadline
from cluster.errors import WorkerLost
from cluster.scaling.kubernetes import KubernetesScaler
from cluster.scaling.kubernetes_api import ApiServer, DeploymentsApi
from cluster.scaling.kubernetes_login import RETRY_S, opened_client
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
    half: str, server: TokenServer, plugin: LoginPlugin, api: ApiServer, tmp_path: Path
) -> None:
    server.known = {"second"}
    (tmp_path / "config").write_text(half)
    with pytest.raises(WorkerLost):
        await size_of(api)


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

    async def work(api: DeploymentsApi, release: str) -> ExitCode:
        await KubernetesScaler(api, release).pools()
        return ExitCode.OK

    assert at_release("chat/chat", work) is ExitCode.UNREACHABLE
    said = capsys.readouterr().err
    assert "does not know who asks" in said and "refused" not in said
