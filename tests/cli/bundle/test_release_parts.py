"""What is packed of a release: the pods that fail first, and what they wrote before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from cli.bundle import release_parts as parts
from cli.bundle.release_parts import release_parts
from cluster.errors import WorkerLost


def pod(name: str, *, is_ready: bool = True, restarts: int = 0, begun: bool = True) -> Any:
    state = {"running": {}} if begun else {"waiting": {"reason": "ImagePullBackOff"}}
    container = {"name": "worker", "restartCount": restarts, "state": state}
    return {
        "metadata": {"name": name},
        "status": {
            "conditions": [{"type": "Ready", "status": str(is_ready)}],
            "containerStatuses": [container],
        },
    }


@dataclass
class Release:
    """Stands for ReleaseReads."""

    of_release: list[Any]
    failure: WorkerLost | None = None
    selectors: list[str] = field(default_factory=list)

    async def pools(self, selector: str) -> Sequence[Mapping[str, Any]]:
        self.selectors.append(selector)
        return [{"metadata": {"name": "llm-decode"}}]

    async def pods_with(self, selector: str) -> Sequence[Mapping[str, Any]]:
        if self.failure is not None:
            raise self.failure
        self.selectors.append(selector)
        return self.of_release

    async def events(self) -> Sequence[Mapping[str, Any]]:
        return [{"involvedObject": {"name": name}} for name in ("llm-decode-1", "other-7")]

    async def log(self, pod: str, container: str, *, previous: bool, num_lines: int) -> str:
        return f"{pod} {container} {previous}"

    async def close(self) -> None:
        """Nothing is open."""


async def packed(release: Release) -> dict[str, object]:
    return {each.name: await each.gather() for each in await release_parts(release, "llm")}


async def test_logs_of_who_is_not_ready_come_first_with_those_before_a_restart() -> None:
    release = Release([pod("llm-decode-1"), pod("llm-decode-2", is_ready=False, restarts=3)])
    found = await packed(release)
    assert [name for name in found if name.startswith("release/logs")] == [
        "release/logs/llm-decode-2/worker.log",
        "release/logs/llm-decode-2/worker.previous.log",
        "release/logs/llm-decode-1/worker.log",
    ]
    assert found["release/logs/llm-decode-2/worker.previous.log"] == "llm-decode-2 worker True"
    assert release.selectors == ["app.kubernetes.io/instance=llm"] * 2


async def test_a_container_that_has_not_begun_has_no_log_and_its_pod_is_there() -> None:
    found = await packed(Release([pod("llm-decode-1", is_ready=False, begun=False)]))
    assert not any(name.startswith("release/logs") for name in found)
    assert "ImagePullBackOff" in str(found["release/pods.json"])


async def test_events_of_others_are_left_out() -> None:
    found = await packed(Release([]))
    assert found["release/events.json"] == [{"involvedObject": {"name": "llm-decode-1"}}]


async def test_pods_whose_logs_are_left_out_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MAX_PODS", 1)
    found = await packed(Release([pod("llm-decode-1"), pod("llm-decode-2", is_ready=False)]))
    assert found["release/pods-without-logs.json"] == ["llm-decode-1"]


async def test_a_server_that_does_not_answer_is_the_callers_to_tell() -> None:
    with pytest.raises(WorkerLost):
        await release_parts(Release([], failure=WorkerLost("away")), "llm")
