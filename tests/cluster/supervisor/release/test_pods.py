"""What pods say of themselves, in words."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.supervisor.release.pods import MAX_CHARS, pod_word
from tests.cluster.supervisor.release.played_release import a_pod, ready

UNSCHEDULABLE = {
    "conditions": [
        {"type": "PodScheduled", "status": "False", "message": "0/3 nodes: 3 lack nvidia.com/gpu"}
    ]
}


def container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [state]}


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        (UNSCHEDULABLE, "waits for a node: 0/3 nodes: 3 lack nvidia.com/gpu"),
        ({}, "waits for its node"),
        (
            container(state={"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}}),
            "ImagePullBackOff: no such tag",
        ),
        (container(state={"running": {}}, started=False), "loads its model"),
        (container(state={"running": {}}, started=True), "joins its routers"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
    ],
)
def test_a_pod_that_takes_no_requests_says_what_it_waits_for(
    status: dict[str, Any], phase: str
) -> None:
    word = pod_word(a_pod("decode", "aa", **status), "decode")
    assert (word.phase, word.is_ready) == (phase, False)


def test_a_ready_pod_has_a_node_and_one_that_ends_is_told_apart() -> None:
    pod = a_pod("decode", "aa", conditions=ready())
    word = pod_word(pod, "decode")
    assert (word.is_ready, word.node, word.is_ending) == (True, "node-1", False)
    pod["metadata"]["deletionTimestamp"] = "2026-11-24T12:00:00Z"
    assert pod_word(pod, "decode").is_ending


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ({"exitCode": 137, "reason": "OOMKilled"}, "OOMKilled, signal SIGKILL"),
        ({"exitCode": 1, "reason": "Error"}, "exit code 1"),
    ],
)
def test_how_a_container_ended_is_said_in_words(ended: dict[str, Any], words: str) -> None:
    status = container(restartCount=2, lastState={"terminated": ended}, state={"running": {}})
    word = pod_word(a_pod("decode", "aa", **status), "decode")
    assert (word.num_restarts, word.last_end) == (2, words)


def test_what_a_cluster_says_of_a_pod_is_bounded() -> None:
    status = container(state={"waiting": {"reason": "ErrImagePull", "message": "x" * 10_000}})
    assert len(pod_word(a_pod("decode", "aa", **status), "decode").phase) == MAX_CHARS
