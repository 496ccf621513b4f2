"""What an object says of itself, as far as the store acts on it."""

from __future__ import annotations

from datetime import datetime

from tests.mini_cluster.history import Object

_DEFAULT_GRACE_S = 30


def timestamp(moment: datetime) -> str:
    """As metadata has it: RFC 3339 in whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def owners(found: Object) -> set[str]:
    return {owner["uid"] for owner in found["metadata"].get("ownerReferences", [])}


def is_on_a_node(found: Object) -> bool:
    return found.get("kind") == "Pod" and bool(found.get("spec", {}).get("nodeName"))


def grace_s_of(doomed: Object, asked_s: int | None) -> int:
    if not is_on_a_node(doomed):
        return 0
    own: int = doomed["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S)
    return own if asked_s is None else asked_s


def keep_what_the_server_owns(new: Object, old: Object) -> None:
    for field in (
        *("uid", "creationTimestamp", "generation", "resourceVersion"),
        *("deletionTimestamp", "deletionGracePeriodSeconds"),
    ):
        new.pop(field, None)
        if field in old:
            new[field] = old[field]


def without_version(found: Object) -> Object:
    metadata = {k: v for k, v in found["metadata"].items() if k != "resourceVersion"}
    return found | {"metadata": metadata}
