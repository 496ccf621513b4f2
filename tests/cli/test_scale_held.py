"""scale beside held workers of a release: they leave, or it is refused if only they might stay."""

from __future__ import annotations

import pytest

from cli.exit_code import ExitCode
from cli.scale import ScaleRequest, _scale_release, scale
from cluster.dial.dialer import Dialer, OperatorLink
from cluster.errors import WorkerLost
from cluster.scaling.kubernetes import KubernetesScaler
from cluster.scaling.kubernetes_call import refused
from protos.membership_pb2 import Member, MembersResponse, MemberState
from tests.cluster.scaling.played_kubernetes import PlayedDeployments, deployment, pods_of

HELD_POD = "chat-prefill-7d9f-x2"


def held() -> list[MemberState]:
    member = Member(worker_id=HELD_POD, role="prefill", pool="prefill")
    return [MemberState(member=member, hold="drain")]


def release(*suffixes: str) -> PlayedDeployments:
    api = PlayedDeployments(deployment("prefill", len(suffixes)))
    api.pods = pods_of("prefill", *suffixes)
    api.get_ready()
    return api


async def scaled(api: PlayedDeployments, size: int) -> ExitCode:
    request = ScaleRequest(sizes={"prefill": size}, is_agreed=True, release="default/chat")
    return await scale(KubernetesScaler(api, "chat"), request, held())


def going(api: PlayedDeployments) -> list[str]:
    return [name for name, pod in api.pods.items() if "deletionTimestamp" in pod["metadata"]]


async def test_the_held_pod_is_the_one_that_leaves() -> None:
    api = release("x1", "x2")
    assert await scaled(api, 1) is ExitCode.OK
    assert going(api) == [HELD_POD]


async def test_where_it_cannot_be_named_nobody_leaves_if_it_might_be_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for suffixes, size, code in (
        (("x1", "x2"), 1, ExitCode.REFUSED),
        (("x1", "x2", "x3"), 2, ExitCode.OK),
    ):
        api = release(*suffixes)

        async def forbidden(pod: str, cost: str | None, *, is_dry_run: bool) -> None:
            raise refused(403, "cannot patch resource pods")

        monkeypatch.setattr(api, "set_deletion_cost", forbidden)
        assert await scaled(api, size) is code
        assert api.items["chat-prefill"]["spec"]["replicas"] == 2
    said = capsys.readouterr().err
    assert f"{HELD_POD} of prefill is held and cannot be named" in said
    assert "cannot patch resource pods" in said and f"uncordon {HELD_POD}" in said
    assert "Kubernetes chooses which" in said


class PlayedRouter(OperatorLink):
    """Knows one worker that is held and one that is not, or does not answer."""

    is_away = False

    async def members(self, *, timeout_s: float) -> MembersResponse:
        if self.is_away:
            raise WorkerLost("connection refused")
        free = MemberState(member=Member(worker_id="chat-prefill-7d9f-x1", pool="prefill"))
        return MembersResponse(members=[free, *held()])

    async def close(self) -> None:
        """Nothing was open."""


class PlayedDialer(Dialer):
    def __init__(self, router: PlayedRouter) -> None:
        self._router = router

    def operator(self, address: str) -> OperatorLink:
        assert address == "r:1"
        return self._router


async def test_a_router_that_is_named_says_who_is_held_and_growth_asks_nobody(
    capsys: pytest.CaptureFixture[str],
) -> None:
    api, router = release("x1", "x2"), PlayedRouter()
    smaller = ScaleRequest(sizes={"prefill": 1}, is_agreed=True, release="default/chat")
    larger = ScaleRequest(sizes={"prefill": 3}, is_dry_run=True, release="default/chat")
    scaler, dialer = KubernetesScaler(api, "chat"), PlayedDialer(router)
    router.is_away = True
    assert await _scale_release(scaler, larger, dialer, "r:1") is ExitCode.OK
    assert await _scale_release(scaler, smaller, dialer, "r:1") is ExitCode.UNREACHABLE
    router.is_away = False
    assert await _scale_release(scaler, smaller, dialer, "r:1") is ExitCode.OK
    assert going(api) == [HELD_POD]
    api = release("x1", "x2")
    assert await _scale_release(KubernetesScaler(api, "chat"), smaller, dialer, "") is ExitCode.OK
    assert "is not known: no router is named" in capsys.readouterr().err
