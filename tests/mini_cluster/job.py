"""Jobs: pods until enough of them have succeeded, or too many have failed.

A pod that failed is replaced at once; a cluster would wait 10 s, then longer.
"""

from __future__ import annotations

from datetime import datetime

from tests.mini_cluster.children import children, is_active, new_pod, phase
from tests.mini_cluster.conditions import condition, merged, status_of
from tests.mini_cluster.history import Object
from tests.mini_cluster.metadata import timestamp
from tests.mini_cluster.object_store import ObjectStore

JOBS = "jobs.batch"
_BACKOFF_LIMIT = 6


def reconcile_jobs(store: ObjectStore, now: datetime) -> None:
    for job in store.select(JOBS):
        if status_of(job, "Complete") or status_of(job, "Failed"):
            continue
        pods = children(store, "pods", job)
        end = _end(job, pods)
        if end is None and not job["spec"].get("suspend"):
            _start_missing(store, job, pods)
        if end is not None:
            _stop(store, pods)
        metadata, pods = job["metadata"], children(store, "pods", job)
        status = _status(job, pods, end, now)
        store.set_status(JOBS, metadata["namespace"], metadata["name"], status)


def _count(pods: list[Object], wanted: str) -> int:
    return sum(phase(pod) == wanted for pod in pods)


def _completions(job: Object) -> int:
    wanted: int = job["spec"].get("completions", 1)
    return wanted


def _end(job: Object, pods: list[Object]) -> Object | None:
    """What it ends with; None: it goes on."""
    if _count(pods, "Succeeded") >= _completions(job):
        return condition("Complete", True, "CompletionsReached", "Reached expected number of pods")
    if _count(pods, "Failed") > job["spec"].get("backoffLimit", _BACKOFF_LIMIT):
        message = "Job has reached the specified backoff limit"
        return condition("Failed", True, "BackoffLimitExceeded", message)
    return None


def _start_missing(store: ObjectStore, job: Object, pods: list[Object]) -> None:
    active = sum(map(is_active, pods))
    left = _completions(job) - _count(pods, "Succeeded")
    name = job["metadata"]["name"]
    labels = {"job-name": name, "batch.kubernetes.io/job-name": name}
    for _ in range(min(left, job["spec"].get("parallelism", 1)) - active):
        store.create("pods", new_pod(job, f"{name}-", labels))


def _stop(store: ObjectStore, pods: list[Object]) -> None:
    for pod in filter(is_active, pods):
        store.delete("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])


def _status(job: Object, pods: list[Object], end: Object | None, now: datetime) -> Object:
    old = job.get("status", {})
    made = {
        "startTime": old.get("startTime", timestamp(now)),
        "active": sum(map(is_active, pods)),
        "ready": sum(phase(pod) == "Running" for pod in pods),
        "succeeded": _count(pods, "Succeeded"),
        "failed": _count(pods, "Failed"),
        "conditions": merged(old.get("conditions", []), [end] if end else [], now),
    }
    if end is not None and end["type"] == "Complete":
        made["completionTime"] = timestamp(now)
    return made
