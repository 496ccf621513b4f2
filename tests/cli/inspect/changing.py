"""The part of docs/cli.md that shows commands which change a fleet, or a release of the chart."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli import flip, hold, scale
from cli.main import app
from cluster.scaling.kubernetes_api import ApiServer
from protos import membership_pb2
from tests.cli.inspect.fake_router import two_pools
from tests.cluster.scaling.played_kubernetes import (
    PlayedDeployments,
    budget,
    deployment,
    gpu_node,
    loaded_pod,
    pod_on,
    quota,
    replica_set,
)

_HEAD = """
`scale`, `flip`, `drain`, `cordon`, `uncordon` and `rollout pause|resume|undo` say what they would
do, ask (`--yes`: they do not), and do it; `--dry-run` says it alone. `adapters load` and `adapters
unload` ask nothing, and have neither flag: they act at once.
"""
_SHOWN = (
    ("scale", "prefill=2", "decode=1", "--dry-run"),
    ("scale", "decode=1", "--dry-run", "-o", "yaml"),
    ("flip", "decode-1", "prefill", "--dry-run"),
    ("drain", "decode-1", "--dry-run"),
    ("cordon", "prefill-0", "--yes"),
    ("uncordon", "decode-1", "-o", "yaml"),
)
_HEAD_OF_RELEASES = """
A release on Kubernetes is changed through its API server, by your kubeconfig. `rollout status`
ends with 1 while pools are on their way; with `--watch` it ends when they are there (0), or when
something is in their way (1), or a minute after the login has ended (3). What limit ranges,
quotas, free GPUs and disruption budgets do not allow is refused, with the numbers (4); what you
may not look at is said to be not known. `--allow-pending` lets new pods wait for nodes that are to
come. `scale --wait` and `flip` give up after `--deadline` seconds: by default what the release
gives a start (the annotation `splitserve/start-limit` of its pools: time for an image and a
start), elsewhere 600. An order that nobody answers may have begun: that is told, with the sizes
from which and to which.
"""
_SHOWN_OF_RELEASES = (
    ("scale", "decode=6", "--dry-run"),
    ("scale", "decode=9", "--dry-run"),
    ("scale", "decode=1", "--dry-run"),
    ("rollout", "status"),
    ("rollout", "status", "-o", "yaml"),
    ("rollout", "pause", "--dry-run"),
    ("rollout", "pause", "decode", "--yes"),
    ("rollout", "resume", "decode", "--yes"),
    ("rollout", "undo", "--dry-run", "-o", "yaml"),
    ("rollout", "undo", "decode", "--yes"),
)
_REFUSED = (("scale", "decode=9"), ("scale", "decode=1"))
_ADDRESS, _RELEASE = "router:50051", "default/chat"


class ChangingRouter:
    """Says what each order comes to, and does nothing."""

    def operator(self, address: str) -> ChangingRouter:
        assert address == _ADDRESS
        return self

    async def members(self, *, timeout_s: float) -> Any:
        pools = (("prefill", 1), ("decode", 2))
        members = two_pools()
        for seen in members:
            seen.member.pairing.block_size_tokens = 16
        return membership_pb2.MembersResponse(
            members=members,
            pools=[
                membership_pb2.PoolState(name=name, wanted=size, present=size, ready=size)
                for name, size in pools
            ],
        )

    async def scale(self, order: Any, *, timeout_s: float) -> Any:
        before = {"prefill": 1, "decode": 2}[order.pool]
        more = range(before, order.size)
        return membership_pb2.ScaleAnswer(
            pool=order.pool,
            size_before=before,
            size=order.size,
            starting=[f"{order.pool}-{number}" for number in more],
            leaving=order.leaving,
            num_gpus=len(more),
        )

    async def hold(self, order: Any, *, timeout_s: float) -> Any:
        is_decode = order.worker_id.startswith("decode")
        return membership_pb2.HoldAnswer(
            worker_id=order.worker_id,
            role="decode" if is_decode else "prefill",
            kind_before="" if order.kind else "drain",
            kind=order.kind,
            num_requests=3,
            cached_tokens=480,
            others=["decode-0"] if is_decode else [],
        )

    async def close(self) -> None:
        """Nothing is open."""


def rolling_release() -> PlayedDeployments:
    """Its decode pool is half on its way to a new template."""
    played = PlayedDeployments(
        deployment("prefill", 2, gpus=1, revision=3), deployment("decode", 4, gpus=1, revision=3)
    )
    played.get_ready()
    played.items["chat-decode"]["status"] |= {"updatedReplicas": 2, "readyReplicas": 3}
    played.pods = loaded_pod("decode", "x1")
    played.sets = [
        replica_set(pool, revision, f"splitserve:{revision}")
        for pool in ("prefill", "decode")
        for revision in (2, 3)
    ]
    for pool in ("prefill", "decode"):
        (container,) = played.items[f"chat-{pool}"]["spec"]["template"]["spec"]["containers"]
        container["image"] = "splitserve:3"
    hard = {"requests.nvidia.com/gpu": "8"}
    played.room.quota_list = [quota("gpus", hard, {"requests.nvidia.com/gpu": "6"})]
    played.room.budget_list = [budget("chat-decode", "decode", minAvailable=2)]
    played.room.node_list = [gpu_node("gpu-a", 4), gpu_node("gpu-b", 4)]
    pools = ("prefill", "prefill", "decode", "decode", "decode", "decode")
    places = ("gpu-a", "gpu-b", "gpu-a", "gpu-a", "gpu-a", "gpu-b")
    played.room.pod_list = [
        pod_on(at, 1, pool=pool) for at, pool in zip(places, pools, strict=True)
    ]
    return played


def run_changing(patch: pytest.MonkeyPatch, *words: str) -> Result:
    """A command that orders something of this router; both of its streams as one."""
    for module in (flip, hold, scale):
        patch.setattr(module, "GrpcDialer", lambda token: ChangingRouter())
    return CliRunner().invoke(app, [*words, "--grpc", _ADDRESS])


def run_at_release(patch: pytest.MonkeyPatch, *words: str) -> Result:
    """The same of a release."""
    played = rolling_release()

    async def opened(namespace: str) -> PlayedDeployments:
        assert namespace == "default"
        return played

    patch.setattr(ApiServer, "opened", opened)
    return CliRunner().invoke(app, [*words, "--kubernetes", _RELEASE])


def changing_transcripts() -> str:
    """In Markdown. What goes to stderr is shown as well: it is said to people."""
    of_releases = "".join(map(_transcript_of_release, _SHOWN_OF_RELEASES))
    return _HEAD + "".join(map(_transcript, _SHOWN)) + _HEAD_OF_RELEASES + of_releases


def _transcript(words: tuple[str, ...]) -> str:
    with pytest.MonkeyPatch.context() as patch:
        done = run_changing(patch, *words)
    assert done.exit_code == 0, done.output
    return _block(words, done)


def _transcript_of_release(words: tuple[str, ...]) -> str:
    with pytest.MonkeyPatch.context() as patch:
        done = run_at_release(patch, *words)
    wanted = 4 if words[:2] in _REFUSED else int(words[:2] == ("rollout", "status"))
    assert done.exit_code == wanted, done.output
    return _block((*words, "--kubernetes", _RELEASE), done)


def _block(words: tuple[str, ...], done: Result) -> str:
    return f"\n```\n$ splitserve {' '.join(words)}\n{done.output.rstrip()}\n```\n"
