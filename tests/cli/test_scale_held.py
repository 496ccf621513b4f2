"""scale beside held workers of a release: they leave, or it is refused if only they might stay."""

from __future__ import annotations

import pytest

from cli.exit_code import ExitCode
from cli.scale import ScaleRequest, scale
from cluster.scaling.kubernetes import KubernetesScaler
from cluster.scaling.kubernetes_api import refused
from protos.membership_pb2 import Member, MemberState
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
