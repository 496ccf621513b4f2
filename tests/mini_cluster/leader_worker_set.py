"""LeaderWorkerSets: groups of pods that are made, ready, updated and recreated as one.

As its own controller does it (0.9), by StatefulSets: one of all leaders, SET-0, SET-1; and for
each leader one of its followers, SET-0-1, SET-0-2, which is the leader's and goes with it.
Not there: surge, partitions, subgroups, exclusive topologies, startup by LeaderReady.
"""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy
from datetime import datetime

from tests.mini_cluster.children import children, is_going, is_ready, new_child, phase
from tests.mini_cluster.group_pods import (
    GROUP_INDEX,
    GROUP_KEY,
    LEADER,
    REVISION,
    SET_NAME,
    SIZE,
    WORKER_INDEX,
)
from tests.mini_cluster.history import Object
from tests.mini_cluster.label_selector import has_all
from tests.mini_cluster.metadata import owners
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.stateful_set import STATEFUL_SETS

SETS = "leaderworkersets.leaderworkerset.x-k8s.io"
_REVISIONS = "controllerrevisions.apps"
_FOREGROUND = "foregroundDeletion"


def reconcile_leader_worker_sets(store: ObjectStore, now: datetime) -> None:
    for found in store.select(SETS):
        revision = _kept_revision(store, found)
        _make_service(store, found)
        _make_leaders(store, found, revision)
        for pod in _pods(store, found):
            _recreate_group_of(store, found, pod)
        for leader in _leaders(store, found):
            if not is_going(leader):
                _make_followers(store, found, leader)
        status = _status(store, found, revision)
        metadata = found["metadata"]
        store.set_status(SETS, metadata["namespace"], metadata["name"], status)
    _collect(store)


def _pods(store: ObjectStore, found: Object) -> list[Object]:
    metadata = found["metadata"]
    wanted = {SET_NAME: metadata["name"]}
    return store.select(
        "pods", metadata["namespace"], lambda pod: has_all(wanted, pod["metadata"]["labels"])
    )


def _leaders(store: ObjectStore, found: Object) -> list[Object]:
    pods = _pods(store, found)
    return [pod for pod in pods if pod["metadata"]["labels"].get(WORKER_INDEX) == "0"]


def _kept_revision(store: ObjectStore, found: Object) -> str:
    """The hash of its template, which is kept: a group that is made anew is of its leader's."""
    template = found["spec"]["leaderWorkerTemplate"]
    text = json.dumps(template, sort_keys=True)
    revision = hashlib.sha256(text.encode()).hexdigest()[:10]
    name, namespace = f"{found['metadata']['name']}-{revision}", found["metadata"]["namespace"]
    if store.find(_REVISIONS, namespace, name) is None:
        made = new_child(found, "apps/v1", "ControllerRevision", name)
        store.create(_REVISIONS, made | {"data": deepcopy(template), "revision": 1})
    return revision


def _make_service(store: ObjectStore, found: Object) -> None:
    metadata = found["metadata"]
    if store.find("services", metadata["namespace"], metadata["name"]) is None:
        made = new_child(found, "v1", "Service", metadata["name"])
        selector = {SET_NAME: metadata["name"]}
        spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
        store.create("services", made | {"spec": spec})


def _make_leaders(store: ObjectStore, found: Object, revision: str) -> None:
    metadata, template = found["metadata"], found["spec"]["leaderWorkerTemplate"]
    labels = {SET_NAME: metadata["name"], WORKER_INDEX: "0", REVISION: revision}
    pod = _labelled(
        template.get("leaderTemplate") or template["workerTemplate"],
        labels,
        {SIZE: str(template.get("size", 1))},
    )
    wanted = found["spec"].get("replicas", 1)
    old = store.find(STATEFUL_SETS, metadata["namespace"], metadata["name"])
    if old is None:
        made = new_child(found, "apps/v1", "StatefulSet", metadata["name"])
        made["metadata"]["labels"] = {SET_NAME: metadata["name"]}
        selector = {SET_NAME: metadata["name"], WORKER_INDEX: "0"}
        spec = _stateful(metadata["name"], selector, pod) | {"replicas": wanted}
        store.create(STATEFUL_SETS, made | {"spec": spec})
    else:
        store.update(
            STATEFUL_SETS, old | {"spec": old["spec"] | {"replicas": wanted, "template": pod}}
        )


def _make_followers(store: ObjectStore, found: Object, leader: Object) -> None:
    metadata, labels = leader["metadata"], leader["metadata"]["labels"]
    if store.find(STATEFUL_SETS, metadata["namespace"], metadata["name"]) is not None:
        return
    name = f"{found['metadata']['name']}-{labels[REVISION]}"
    template = store.get(_REVISIONS, metadata["namespace"], name)["data"]
    shared = {key: labels[key] for key in (SET_NAME, GROUP_INDEX, GROUP_KEY)}
    pod = _labelled(
        template["workerTemplate"],
        shared | {REVISION: labels[REVISION]},
        {SIZE: str(template.get("size", 1)), LEADER: metadata["name"]},
    )
    made = new_child(
        leader | {"apiVersion": "v1", "kind": "Pod"}, "apps/v1", "StatefulSet", metadata["name"]
    )
    made["metadata"]["labels"] = shared | {REVISION: labels[REVISION]}
    spec = _stateful(found["metadata"]["name"], shared, pod)
    numbers = {"replicas": int(template.get("size", 1)) - 1, "ordinals": {"start": 1}}
    store.create(STATEFUL_SETS, made | {"spec": spec | numbers})


def _stateful(service: str, selector: dict[str, str], template: Object) -> Object:
    return {
        "serviceName": service,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": selector},
        "template": template,
    }


def _labelled(template: Object, labels: dict[str, str], annotations: dict[str, str]) -> Object:
    made = deepcopy(template)
    metadata = made.setdefault("metadata", {})
    metadata["labels"] = (metadata.get("labels") or {}) | labels
    metadata["annotations"] = (metadata.get("annotations") or {}) | annotations
    return made


def _recreate_group_of(store: ObjectStore, found: Object, pod: Object) -> None:
    """A pod that goes, or one of whose containers was started again, takes its group along."""
    template = found["spec"]["leaderWorkerTemplate"]
    policy = template.get("restartPolicy", "RecreateGroupOnPodRestart")
    if policy != "RecreateGroupOnPodRestart" or not (is_going(pod) or _was_restarted(pod)):
        return
    leader = _leader_of(store, pod)
    if leader is not None and not is_going(leader):
        _delete_in_foreground(store, "pods", leader)


def _was_restarted(pod: Object) -> bool:
    status = pod.get("status", {})
    containers = [
        *status.get("containerStatuses", ()),
        *status.get("initContainerStatuses", ()),
    ]
    lives = phase(pod) in ("Running", "Pending")
    return lives and any(each.get("restartCount", 0) > 0 for each in containers)


def _leader_of(store: ObjectStore, pod: Object) -> Object | None:
    """None for a pod whose leader is another by now."""
    metadata = pod["metadata"]
    if metadata["labels"].get(WORKER_INDEX) == "0":
        return pod
    leader = store.find("pods", metadata["namespace"], metadata["annotations"][LEADER])
    if leader is None or leader["metadata"]["labels"][REVISION] != metadata["labels"][REVISION]:
        return None
    sets = children(store, STATEFUL_SETS, leader)
    return leader if any(each["metadata"]["uid"] in owners(pod) for each in sets) else None


def _delete_in_foreground(store: ObjectStore, resource: str, doomed: Object) -> None:
    """It is gone when all that it owns is."""
    metadata = doomed["metadata"]

    def hold(draft: Object) -> None:
        draft["metadata"]["finalizers"] = [_FOREGROUND]

    store.edit(resource, metadata["namespace"], metadata["name"], hold)
    store.delete(resource, metadata["namespace"], metadata["name"])


def _collect(store: ObjectStore) -> None:
    """The garbage collector's part of a deletion in the foreground."""
    for resource, owned in (("pods", STATEFUL_SETS), (STATEFUL_SETS, "pods")):
        for found in store.select(resource, matches=_is_held):
            left = children(store, owned, found)
            for each in left:
                if not is_going(each):
                    _end(store, owned, each)
            if not left:
                metadata = found["metadata"]
                store.edit(resource, metadata["namespace"], metadata["name"], _let_go)


def _end(store: ObjectStore, resource: str, found: Object) -> None:
    if resource == STATEFUL_SETS:
        _delete_in_foreground(store, resource, found)
    else:
        store.delete(resource, found["metadata"]["namespace"], found["metadata"]["name"])


def _is_held(found: Object) -> bool:
    return is_going(found) and _FOREGROUND in found["metadata"].get("finalizers", ())


def _let_go(draft: Object) -> None:
    draft["metadata"]["finalizers"] = []


def _status(store: ObjectStore, found: Object, revision: str) -> Object:
    leaders = _leaders(store, found)
    size = int(found["spec"]["leaderWorkerTemplate"].get("size", 1))
    ready = [leader for leader in leaders if _is_group_ready(store, leader, size)]
    new = [each for each in leaders if each["metadata"]["labels"][REVISION] == revision]
    selector = f"{SET_NAME}={found['metadata']['name']},{WORKER_INDEX}=0"
    return {
        "observedGeneration": found["metadata"]["generation"],
        "replicas": len(leaders),
        "readyReplicas": len(ready),
        "updatedReplicas": len(new),
        "hpaPodSelector": selector,
    }


def _is_group_ready(store: ObjectStore, leader: Object, size: int) -> bool:
    followers = [
        pod
        for each in children(store, STATEFUL_SETS, leader)
        for pod in children(store, "pods", each)
    ]
    pods = [leader, *followers]
    return len(pods) == size and all(is_ready(pod) and not is_going(pod) for pod in pods)
