"""What a pod says of itself, in words for an operator. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.process.exit_words import exit_in_words
from cluster.scaling.groups import Object

MAX_CHARS = 300
"""Of what a cluster says of one pod."""
_OF_SIGNALS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class PodWord:
    """At one look."""

    name: str
    pool: str
    node: str
    """Empty while it has none."""
    is_ready: bool
    """It takes requests."""
    is_ending: bool
    phase: str
    """Where it is in its life, as far as it is known."""
    num_restarts: int
    """Of its containers."""
    last_end: str
    """How one of them ended last; empty: none has."""


def pod_word(pod: Object, pool: str) -> PodWord:
    """Of a pod as the API server has it."""
    status = pod.get("status") or {}
    containers = list(status.get("containerStatuses") or ())
    ready = _condition(status, "Ready")
    return PodWord(
        name=pod["metadata"]["name"],
        pool=pool,
        node=pod["spec"].get("nodeName") or "",
        is_ready=ready.get("status") == "True",
        is_ending="deletionTimestamp" in pod["metadata"],
        phase=_phase(pod, status, containers)[:MAX_CHARS],
        num_restarts=sum(each.get("restartCount", 0) for each in containers),
        last_end=next(filter(None, map(_last_end, containers)), ""),
    )


def _phase(pod: Object, status: Object, containers: list[Object]) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "ends its requests"
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return f"waits for a node: {scheduled.get('message') or scheduled.get('reason')}"
    for each in containers:
        if waiting := (each.get("state") or {}).get("waiting"):
            return ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))
    if status.get("phase") in ("Failed", "Succeeded"):
        return str(status.get("reason") or status.get("message") or status["phase"])
    if not containers:
        return "waits for its node"
    is_up = all(each.get("started") for each in containers)
    return "joins its routers" if is_up else "loads its model"


def _condition(status: Object, kind: str) -> Object:
    found = (each for each in status.get("conditions") or () if each["type"] == kind)
    return next(found, {})


def _last_end(container: Object) -> str:
    """Such as "OOMKilled, signal SIGKILL"."""
    ended = (container.get("lastState") or {}).get("terminated")
    if ended is None:
        return ""
    code = int(ended.get("exitCode", 0))
    how = exit_in_words(_OF_SIGNALS - code if code > _OF_SIGNALS else code)
    reason = ended.get("reason")
    return how if reason in (None, "", "Error", "Completed") else f"{reason}, {how}"
