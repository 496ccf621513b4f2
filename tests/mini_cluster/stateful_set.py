"""StatefulSets: pods with numbers and names of their own, each after the one before."""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy
from datetime import datetime

from tests.mini_cluster.children import children, is_going, is_ready, new_child, new_pod
from tests.mini_cluster.group_pods import told_of_its_group
from tests.mini_cluster.history import Object
from tests.mini_cluster.object_store import ObjectStore

STATEFUL_SETS = "statefulsets.apps"
_HASH = "controller-revision-hash"


def reconcile_stateful_sets(store: ObjectStore, now: datetime) -> None:
    for found in store.select(STATEFUL_SETS, matches=lambda each: not is_going(each)):
        name, namespace = found["metadata"]["name"], found["metadata"]["namespace"]
        revision = f"{name}-{_template_hash(found)}"
        pods = {_number(pod): pod for pod in children(store, "pods", found)}
        _step(store, found, pods, revision)
        pods = {_number(pod): pod for pod in children(store, "pods", found)}
        status = _status(found, list(pods.values()), revision)
        store.set_status(STATEFUL_SETS, namespace, name, status)


def _template_hash(found: Object) -> str:
    template = json.dumps(found["spec"]["template"], sort_keys=True)
    return hashlib.sha256(template.encode()).hexdigest()[:10]


def _number(pod: Object) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])


def _step(store: ObjectStore, found: Object, pods: dict[int, Object], revision: str) -> None:
    """The next pod that is missing; else the last that is too many; else the last that is of an
    older template. With `Parallel` all that are missing, or too many, at once."""
    wanted: int = found["spec"].get("replicas", 1)
    is_parallel = found["spec"].get("podManagementPolicy") == "Parallel"
    start: int = found["spec"].get("ordinals", {}).get("start", 0)
    numbers = range(start, start + wanted)
    missing = [number for number in numbers if number not in pods]
    extra = [number for number in sorted(pods, reverse=True) if number not in numbers]
    are_settled = all(is_ready(pod) and not is_going(pod) for pod in pods.values())
    if missing and (is_parallel or all(is_ready(pods[n]) for n in range(start, missing[0]))):
        for number in missing if is_parallel else missing[:1]:
            _create(store, found, number, revision)
    elif extra and (is_parallel or not any(map(is_going, pods.values()))):
        for number in extra if is_parallel else extra[:1]:
            _delete(store, pods[number])
    elif are_settled:
        old = [n for n in pods if pods[n]["metadata"]["labels"].get(_HASH) != revision]
        for number in sorted(old)[-1:]:
            _delete(store, pods[number])


def _create(store: ObjectStore, found: Object, number: int, revision: str) -> None:
    """Nothing while another's pod still has the name."""
    name = f"{found['metadata']['name']}-{number}"
    if store.find("pods", found["metadata"]["namespace"], name) is not None:
        return
    labels = {
        _HASH: revision,
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": str(number),
    }
    pod = new_pod(found, name, labels)
    pod["spec"] |= {"hostname": name, "subdomain": found["spec"].get("serviceName", "")}
    for template in found["spec"].get("volumeClaimTemplates", []):
        pod["spec"].setdefault("volumes", []).append(_claimed(store, found, template, name))
    store.create("pods", told_of_its_group(pod))


def _claimed(store: ObjectStore, found: Object, template: Object, pod: str) -> Object:
    """The volume of a claim that stays when the pod goes."""
    volume = template["metadata"]["name"]
    claim = new_child(found, "v1", "PersistentVolumeClaim", f"{volume}-{pod}")
    del claim["metadata"]["ownerReferences"]
    namespace = claim["metadata"]["namespace"]
    if store.find("persistentvolumeclaims", namespace, f"{volume}-{pod}") is None:
        store.create("persistentvolumeclaims", claim | {"spec": deepcopy(template["spec"])})
    return {"name": volume, "persistentVolumeClaim": {"claimName": f"{volume}-{pod}"}}


def _delete(store: ObjectStore, pod: Object) -> None:
    if not is_going(pod):
        store.delete("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])


def _status(found: Object, pods: list[Object], revision: str) -> Object:
    updated = [pod for pod in pods if pod["metadata"]["labels"].get(_HASH) == revision]
    before = found.get("status", {}).get("currentRevision", revision)
    wanted: int = found["spec"].get("replicas", 1)
    is_done = len(updated) == len(pods) == wanted and all(map(is_ready, pods))
    return {
        "observedGeneration": found["metadata"]["generation"],
        "replicas": len(pods),
        "readyReplicas": sum(map(is_ready, pods)),
        "availableReplicas": sum(map(is_ready, pods)),
        "updatedReplicas": len(updated),
        "currentReplicas": len(updated) if is_done else len(pods) - len(updated),
        "currentRevision": revision if is_done else before,
        "updateRevision": revision,
    }
