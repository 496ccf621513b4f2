"""`rollout` against a release that a test plays: how a watch ends, and what is told half done."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cli.exit_code import ExitCode
from cli.rollout import RolloutRequest, change_rollout, show_rollout
from cluster.scaling.kubernetes_api import ApiServer
from cluster.scaling.kubernetes_call import refused
from cluster.scaling.login_patience import PATIENCE_S
from cluster.scaling.rollout import RolloutDeed
from tests.cluster.scaling.played_kubernetes import PlayedDeployments, deployment

LOOKS = 10_000
"""After which a watch that does not end is ended."""


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> PlayedDeployments:
    """On its way."""
    played = PlayedDeployments(deployment("prefill", 2), deployment("decode", 4))
    played.get_ready()
    played.items["chat-decode"]["status"] |= {"updatedReplicas": 1, "readyReplicas": 3}

    async def opened(namespace: str) -> PlayedDeployments:
        assert namespace == "default"
        return played

    monkeypatch.setattr(ApiServer, "opened", opened)
    return played


class Watching:
    """A clock that passes by its sleeps; `then` is called at each, with its number."""

    def __init__(self, then: Callable[[int], None]) -> None:
        self._then = then
        self.num_looks = 0
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.num_looks += 1
        assert self.num_looks < LOOKS
        self.now_s += seconds
        self._then(self.num_looks)

    def watch(self) -> ExitCode:
        return show_rollout(
            "default/chat", None, output="table", every_s=2.0, sleep=self.sleep, clock=self
        )


def test_a_watch_ends_some_time_after_the_login_and_says_why_once(
    api: PlayedDeployments, capsys: pytest.CaptureFixture[str]
) -> None:
    def end_login(number: int) -> None:
        api.knows_who_asks = number < 10

    watching = Watching(end_login)
    assert watching.watch() is ExitCode.UNREACHABLE
    assert watching.num_looks == 10 + PATIENCE_S / 2.0
    said = capsys.readouterr().err
    assert said.count("does not know who asks") == 2, "when it was lost, and at the end"
    assert "kubectl auth whoami" in said


def test_a_watch_goes_on_when_somebody_logs_in_again(api: PlayedDeployments) -> None:
    def end_and_begin(number: int) -> None:
        api.knows_who_asks = number % 35 < 10
        if number == 200:
            api.knows_who_asks = True
            api.get_ready()

    assert Watching(end_and_begin).watch() is ExitCode.OK


def test_a_watch_waits_for_a_server_that_is_away_and_says_so_once_each_time(
    api: PlayedDeployments, capsys: pytest.CaptureFixture[str]
) -> None:
    def go_and_come(number: int) -> None:
        api.is_silent = 10 <= number < 1000 or 1010 <= number < 2000
        if number == 2000:
            api.get_ready()

    assert Watching(go_and_come).watch() is ExitCode.OK
    assert capsys.readouterr().err.count("does not answer") == 2


def pausing(pool: str | None = None) -> ExitCode:
    request = RolloutRequest(deed=RolloutDeed.PAUSE, pool=pool, is_agreed=True)
    return change_rollout("default/chat", request)


@pytest.mark.parametrize("pool", ["decode", None])
def test_a_change_that_nobody_answers_may_have_been_made(
    pool: str | None, api: PlayedDeployments, capsys: pytest.CaptureFixture[str]
) -> None:
    api.patch_is_unheard = True
    assert pausing(pool) is ExitCode.UNREACHABLE
    said = capsys.readouterr().err
    words = "decode may be" if pool else "decode not tried; prefill may be"
    assert f"error: {words} on hold: nobody has said so\n" in said
    assert "splitserve rollout status" in said and "does not answer" in said
    assert len(api.patches) == 1


def test_of_several_that_nobody_answers_for_comes_after_those_that_are_done(
    api: PlayedDeployments, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    patch = api.patch

    async def then_lost(*words, is_dry_run):  # type: ignore[no-untyped-def]
        api.patch_is_unheard = bool(api.patches)
        await patch(*words, is_dry_run=is_dry_run)

    monkeypatch.setattr(api, "patch", then_lost)
    assert pausing() is ExitCode.FAILED
    said = capsys.readouterr().err
    assert "prefill: done; decode may be on hold: nobody has said so: the API server" in said


def test_a_change_that_is_refused_was_not_made(
    api: PlayedDeployments, capsys: pytest.CaptureFixture[str]
) -> None:
    api.refuses_with = refused(403, "cannot patch deployments")
    assert pausing() is ExitCode.REFUSED
    assert "may be" not in capsys.readouterr().err
