"""What the API server does to an object between the wire and the store: defaults, and the like.

Of the defaults, those are set that controllers, kubelets and clients here go by.
"""

from __future__ import annotations

import base64
from typing import Any

from tests.mini_cluster.history import Object
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.refusals import bad_request
from tests.mini_cluster.resources import DEFINITIONS, Resource

_POD = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
}
_PROBE = {
    "periodSeconds": 10,
    "timeoutSeconds": 1,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
_ROLLING = {"maxSurge": "25%", "maxUnavailable": "25%"}
_SPECS: dict[str, Object] = {
    "Deployment": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600},
    "ReplicaSet": {"replicas": 1},
    "StatefulSet": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "podManagementPolicy": "OrderedReady",
    },
    "Pod": {"serviceAccountName": "default"},
    "Job": {"backoffLimit": 6, "completions": 1, "parallelism": 1},
    "Service": {"type": "ClusterIP", "sessionAffinity": "None"},
    "PersistentVolumeClaim": {"volumeMode": "Filesystem"},
}


def received(resource: Resource, body: Object, namespace: str) -> Object:
    """As it is meant: in the request's namespace, of the resource's kind, without nulls."""
    made: Object = _with_quantities(_without_nulls(body))
    for field, wanted in resource.type_meta.items():
        if made.setdefault(field, wanted) != wanted:
            raise bad_request(f"the {field} {made[field]!r} is not this resource's, {wanted!r}")
    metadata = made.setdefault("metadata", {})
    if resource.is_namespaced and metadata.setdefault("namespace", namespace) != namespace:
        raise bad_request("the namespace of the object is not the request's")
    if resource.kind == "Secret" and "stringData" in made:
        plain = made.pop("stringData")
        encoded = {key: base64.b64encode(v.encode()).decode() for key, v in plain.items()}
        made["data"] = made.get("data", {}) | encoded
    return made


def _with_quantities(value: Any) -> Any:
    """Amounts of resources are strings, however they were written."""
    if isinstance(value, list):
        return [_with_quantities(each) for each in value]
    if not isinstance(value, dict):
        return value
    made = {key: _with_quantities(each) for key, each in value.items()}
    if isinstance(asked := made.get("resources"), dict):
        for kind in ("limits", "requests"):
            if isinstance(amounts := asked.get(kind), dict):
                asked[kind] = {name: str(amount) for name, amount in amounts.items()}
    return made


def with_defaults(resource: Resource, made: Object) -> Object:
    """In place, where a field is missing; returns it."""
    if resource.kind == "Secret":
        made.setdefault("type", "Opaque")
    spec = made.get("spec")
    if not isinstance(spec, dict) or resource.custom is not None:
        return made
    _fill(spec, _SPECS.get(resource.kind, {}))
    if resource.kind == "Deployment":
        _fill_strategy(spec.setdefault("strategy", {"type": "RollingUpdate"}))
    for port in spec.get("ports", ()) if resource.kind == "Service" else ():
        _fill(port, {"protocol": "TCP", "targetPort": port["port"]})
    pod = spec if resource.kind == "Pod" else spec.get("template", {}).get("spec")
    if pod:
        _fill_pod(pod)
    return made


def first_status(resource: Resource, made: Object) -> Object:
    """What a new object's status is before anybody has looked at it; {}: none."""
    if resource.kind in ("Pod", "PersistentVolumeClaim"):
        return {"phase": "Pending"}
    if resource.kind == "Namespace":
        return {"phase": "Active"}
    if resource.name == DEFINITIONS:
        held = [{"type": type_, "status": "True"} for type_ in ("NamesAccepted", "Established")]
        return {"conditions": held, "acceptedNames": made["spec"]["names"]}
    return {}


def after_creation(store: ObjectStore, resource: Resource, made: Object) -> None:
    """A namespace is born with a service account."""
    if resource.kind == "Namespace":
        metadata = {"name": "default", "namespace": made["metadata"]["name"]}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
        store.create("serviceaccounts", account)


def _fill(place: Object, defaults: Object) -> None:
    for key, value in defaults.items():
        place.setdefault(key, value)


def _fill_strategy(strategy: Object) -> None:
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _fill(strategy.setdefault("rollingUpdate", {}), _ROLLING)


def _fill_pod(pod: Object) -> None:
    _fill(pod, _POD)
    for container in [*pod.get("initContainers", ()), *pod["containers"]]:
        container.setdefault("imagePullPolicy", "IfNotPresent")
        for port in container.get("ports", ()):
            port.setdefault("protocol", "TCP")
        for probe in filter(None, map(container.get, _PROBES)):
            _fill(probe, _PROBE)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
