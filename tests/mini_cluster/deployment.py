"""Deployments: a ReplicaSet for each template, and a way from one to the next."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime

from tests.mini_cluster.children import children, new_child
from tests.mini_cluster.deployment_status import status_of_deployment
from tests.mini_cluster.history import Object
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.replica_set import REPLICA_SETS
from tests.mini_cluster.rolling_update import Bounds, Generation, grown, shrunk

DEPLOYMENTS = "deployments.apps"
REVISION = "deployment.kubernetes.io/revision"
_HASH = "pod-template-hash"
_HISTORY = 10


def reconcile_deployments(store: ObjectStore, now: datetime) -> None:
    for deployment in store.select(DEPLOYMENTS):
        if "deletionTimestamp" in deployment["metadata"]:
            continue
        new = _current(store, deployment)
        if not deployment["spec"].get("paused"):
            _roll(store, deployment, new)
        _forget(store, deployment, new)
        metadata = deployment["metadata"]
        sets = children(store, REPLICA_SETS, deployment)
        status = status_of_deployment(deployment, sets, new["metadata"]["name"], now)
        store.set_status(DEPLOYMENTS, metadata["namespace"], metadata["name"], status)


def revision_of(found: Object) -> int:
    return int((found["metadata"].get("annotations") or {}).get(REVISION, 0))


def _template_hash(deployment: Object) -> str:
    template = json.dumps(deployment["spec"]["template"], sort_keys=True)
    return hashlib.sha256(template.encode()).hexdigest()[:10]


def _current(store: ObjectStore, deployment: Object) -> Object:
    """The ReplicaSet of the template as it is now; an old one, when one goes back to it. It has the
    highest revision."""
    name = f"{deployment['metadata']['name']}-{_template_hash(deployment)}"
    sets = children(store, REPLICA_SETS, deployment)
    newest = max(map(revision_of, sets), default=0)
    found = next((each for each in sets if each["metadata"]["name"] == name), None)
    if found is None:
        found = store.create(REPLICA_SETS, _new_set(deployment, name, newest + 1))
    elif revision_of(found) < newest:
        found = _annotated(store, REPLICA_SETS, found, newest + 1)
    _annotated(store, DEPLOYMENTS, deployment, revision_of(found))
    return found


def _new_set(deployment: Object, name: str, revision: int) -> Object:
    made = new_child(deployment, "apps/v1", "ReplicaSet", name)
    template = json.loads(json.dumps(deployment["spec"]["template"]))
    labels = template["metadata"].setdefault("labels", {})
    labels[_HASH] = name.rpartition("-")[2]
    made["metadata"] |= {"labels": dict(labels), "annotations": {REVISION: str(revision)}}
    selector = json.loads(json.dumps(deployment["spec"]["selector"]))
    selector.setdefault("matchLabels", {})[_HASH] = labels[_HASH]
    made["spec"] = {"replicas": 0, "selector": selector, "template": template}
    if "minReadySeconds" in deployment["spec"]:
        made["spec"]["minReadySeconds"] = deployment["spec"]["minReadySeconds"]
    return made


def _annotated(store: ObjectStore, resource: str, found: Object, revision: int) -> Object:
    def mark(draft: Object) -> None:
        annotations = draft["metadata"].get("annotations") or {}
        draft["metadata"]["annotations"] = annotations | {REVISION: str(revision)}

    metadata = found["metadata"]
    return store.edit(resource, metadata["namespace"], metadata["name"], mark)


def _roll(store: ObjectStore, deployment: Object, new: Object) -> None:
    """One step: the new ones grow, then the old ones shrink as far as they now may."""
    name = new["metadata"]["name"]
    sets = sorted(children(store, REPLICA_SETS, deployment), key=revision_of)
    old = [each for each in sets if each["metadata"]["name"] != name]
    bounds, generations = Bounds.of(deployment), [_generation(each) for each in old]
    if (deployment["spec"].get("strategy") or {}).get("type") == "Recreate":
        _scale_all(store, old, [0] * len(old))
        if not any(each.get("status", {}).get("replicas") for each in old):
            _scale_all(store, [new], [bounds.wanted])
        return
    current = _generation(new)
    current = Generation(grown(bounds, current, generations), current.available)
    _scale_all(store, [new], [current.asked])
    _scale_all(store, old, shrunk(bounds, current, generations))


def _generation(found: Object) -> Generation:
    available = found.get("status", {}).get("availableReplicas", 0)
    return Generation(found["spec"]["replicas"], available)


def _scale_all(store: ObjectStore, sets: list[Object], replicas: list[int]) -> None:
    for found, number in zip(sets, replicas, strict=True):
        metadata = found["metadata"]

        def scale(draft: Object, number: int = number) -> None:
            draft["spec"]["replicas"] = number

        store.edit(REPLICA_SETS, metadata["namespace"], metadata["name"], scale)


def _forget(store: ObjectStore, deployment: Object, new: Object) -> None:
    """Of old ReplicaSets without pods the newest stay, for going back."""
    limit: int = deployment["spec"].get("revisionHistoryLimit", _HISTORY)
    name = new["metadata"]["name"]
    empty = [
        found
        for found in sorted(children(store, REPLICA_SETS, deployment), key=revision_of)
        if found["metadata"]["name"] != name
        and not found["spec"]["replicas"]
        and not found.get("status", {}).get("replicas")
    ]
    for found in empty[: max(0, len(empty) - limit)]:
        metadata = found["metadata"]
        store.delete(REPLICA_SETS, metadata["namespace"], metadata["name"])
