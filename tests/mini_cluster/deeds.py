"""What remains of the API: deletions, evictions, tokens, and questions about oneself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.mini_cluster.access import Access, Deed, User
from tests.mini_cluster.asks import Ask
from tests.mini_cluster.evictions import refuse_eviction
from tests.mini_cluster.history import Object
from tests.mini_cluster.metadata import timestamp
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.reads import listed
from tests.mini_cluster.refusals import stale
from tests.mini_cluster.resources import Resources

_TOKEN_LIFE = timedelta(hours=1)


def deleted(store: ObjectStore, ask: Ask, resources: Resources) -> Object:
    """The object where its end is awaited, else that it is gone. A namespace takes what lies in
    it along, and does not wait for it."""
    target = ask.target
    if target.resource.kind == "Namespace":
        _empty(store, target.name, resources)
    options = ask.body if isinstance(ask.body, dict) else {}
    found = _delete(store, ask, target.name, options)
    if found["metadata"].get("deletionTimestamp") and store.find(
        target.resource.name, target.namespace, target.name
    ):
        return found
    details = {"name": target.name, "group": target.resource.group, "kind": target.resource.plural}
    details["uid"] = found["metadata"]["uid"]
    return {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": details}


def all_deleted(store: ObjectStore, ask: Ask) -> Object:
    """Those that the selectors name; the list of what they were."""
    found = listed(store, ask)
    for each in found["items"]:
        _delete(store, ask, each["metadata"]["name"], {})
    return found


def _delete(store: ObjectStore, ask: Ask, name: str, options: Object) -> Object:
    key = (ask.target.resource.name, ask.target.namespace, name)
    wanted = options.get("preconditions") or {}
    version = store.get(*key)["metadata"]["resourceVersion"]
    if wanted.get("resourceVersion", version) != version:
        raise stale(key[0], name)
    policy = options.get("propagationPolicy", ask.params.get("propagationPolicy"))
    grace = options.get("gracePeriodSeconds", ask.params.get("gracePeriodSeconds"))
    return store.delete(
        *key,
        grace_s=None if grace is None else int(grace),
        uid=wanted.get("uid"),
        orphans=policy == "Orphan" or bool(options.get("orphanDependents")),
    )


def _empty(store: ObjectStore, namespace: str, resources: Resources) -> None:
    for resource in resources.all():
        for found in store.select(resource.name, namespace) if resource.is_namespaced else ():
            if store.find(resource.name, namespace, found["metadata"]["name"]):
                store.delete(resource.name, namespace, found["metadata"]["name"])


def evicted(store: ObjectStore, ask: Ask) -> Object:
    """Deletes the pod, unless a budget forbids it."""
    key = ("pods", ask.target.namespace, ask.target.name)
    refuse_eviction(store, store.get(*key))
    options = (ask.body or {}).get("deleteOptions") or {}
    store.delete(*key, grace_s=options.get("gracePeriodSeconds"))
    return {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}


def token(access: Access, ask: Ask) -> Object:
    """A TokenRequest with its answer. The time that it says is for show."""
    made = access.token_of(ask.target.namespace, ask.target.name)
    until = timestamp(datetime.now(UTC) + _TOKEN_LIFE)
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": ask.target.name, "namespace": ask.target.namespace},
        "spec": (ask.body or {}).get("spec") or {},
        "status": {"token": made, "expirationTimestamp": until},
    }


def reviewed(access: Access, user: User, review: Object) -> Object:
    """A SelfSubjectReview or SelfSubjectAccessReview with its answer."""
    if review["kind"] == "SelfSubjectReview":
        return review | {"status": {"userInfo": {"username": user.name, "groups": user.groups}}}
    wanted = review["spec"].get("resourceAttributes") or {}
    part = f"/{wanted['subresource']}" if wanted.get("subresource") else ""
    deed = Deed(
        wanted.get("verb", "get"),
        wanted.get("group", ""),
        wanted.get("resource", "") + part,
        wanted.get("namespace", ""),
        wanted.get("name", ""),
    )
    return review | {"status": {"allowed": access.allows(user, deed)}}
