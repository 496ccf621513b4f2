"""What a controller has made for an object, and what its pods say of themselves."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime

from tests.mini_cluster.history import Object
from tests.mini_cluster.metadata import owners
from tests.mini_cluster.object_store import ObjectStore


def children(store: ObjectStore, resource: str, owner: Object) -> list[Object]:
    """By name."""
    metadata = owner["metadata"]
    uid: str = metadata["uid"]
    return store.select(resource, metadata["namespace"], lambda found: uid in owners(found))


def new_child(owner: Object, api_version: str, kind: str, name: str) -> Object:
    """Without a spec. A name that ends in "-" is what the store generates one from."""
    metadata = owner["metadata"]
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    names = {"generateName": name} if name.endswith("-") else {"name": name}
    made = names | {"namespace": metadata["namespace"], "ownerReferences": [reference]}
    return {"apiVersion": api_version, "kind": kind, "metadata": made}


def new_pod(owner: Object, name: str, labels: dict[str, str] | None = None) -> Object:
    """As the owner's template says, with these labels beside its own."""
    template = owner["spec"]["template"]
    pod = new_child(owner, "v1", "Pod", name)
    given = template.get("metadata") or {}
    pod["metadata"]["labels"] = (given.get("labels") or {}) | (labels or {})
    pod["metadata"]["annotations"] = dict(given.get("annotations") or {})
    return pod | {"spec": deepcopy(template["spec"]), "status": {"phase": "Pending"}}


def is_going(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def phase(pod: Object) -> str:
    found: str = pod.get("status", {}).get("phase", "Pending")
    return found


def is_active(pod: Object) -> bool:
    """It runs, or will, and nobody has asked it to leave."""
    return not is_going(pod) and phase(pod) not in ("Succeeded", "Failed")


def is_ready(pod: Object) -> bool:
    return _ready_since(pod) is not None


def is_available(pod: Object, min_ready_s: int, now: datetime) -> bool:
    """Ready for that long."""
    since = _ready_since(pod)
    return since is not None and (now - since).total_seconds() >= min_ready_s


def _ready_since(pod: Object) -> datetime | None:
    for condition in pod.get("status", {}).get("conditions", []):
        if condition["type"] == "Ready" and condition["status"] == "True":
            since = datetime.strptime(condition["lastTransitionTime"], "%Y-%m-%dT%H:%M:%SZ")
            return since.replace(tzinfo=UTC)
    return None
