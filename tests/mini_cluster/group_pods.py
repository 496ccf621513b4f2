"""What the webhook of LeaderWorkerSets does to the pods of a group as they are made."""

from __future__ import annotations

import hashlib

from tests.mini_cluster.history import Object

DOMAIN = "leaderworkerset.sigs.k8s.io"
SET_NAME, GROUP_INDEX = f"{DOMAIN}/name", f"{DOMAIN}/group-index"
WORKER_INDEX, GROUP_KEY = f"{DOMAIN}/worker-index", f"{DOMAIN}/group-key"
REVISION, SIZE, LEADER = (
    f"{DOMAIN}/template-revision-hash",
    f"{DOMAIN}/size",
    f"{DOMAIN}/leader-name",
)


def told_of_its_group(pod: Object) -> Object:
    """With its labels and variables where it is one of a group; otherwise as it is. A value that
    the template has for one of these variables stays, and what refers to it still finds it."""
    metadata = pod["metadata"]
    if SET_NAME not in metadata.get("labels", {}):
        return pod
    labels = metadata["labels"]
    parent, _, number = metadata["name"].rpartition("-")
    if labels.get(WORKER_INDEX) == "0":
        leader, index = metadata["name"], "0"
        labels[GROUP_INDEX] = number
        labels[GROUP_KEY] = group_key(metadata["namespace"], leader)
    else:
        leader, index = parent, number
        labels[WORKER_INDEX] = index
    told = {
        "LWS_LEADER_ADDRESS": f"{leader}.{pod['spec']['subdomain']}.{metadata['namespace']}",
        "LWS_GROUP_SIZE": metadata["annotations"][SIZE],
        "LWS_WORKER_INDEX": index,
    }
    for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
        own = container.get("env") or []
        names = {item["name"] for item in own}
        new = [{"name": name, "value": told[name]} for name in told if name not in names]
        container["env"] = [*new, *own]
    return pod


def group_key(namespace: str, leader: str) -> str:
    return hashlib.sha1(f"{namespace}/{leader}".encode(), usedforsecurity=False).hexdigest()
