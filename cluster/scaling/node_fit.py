"""Whether a pod may be on a node, by what both say: labels, affinity to nodes, taints. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.scaling.groups import Object
from cluster.scaling.label_selectors import Labels, holds

_REPELS = ("NoSchedule", "NoExecute")


def may_be_on(pod: Object, node: Object) -> bool:
    """Of a pod's spec, and a node that is there."""
    spec, metadata = node.get("spec") or {}, node["metadata"]
    labels = metadata.get("labels") or {}
    if spec.get("unschedulable"):
        return False
    wanted = pod.get("nodeSelector") or {}
    return (
        all(labels.get(key) == value for key, value in wanted.items())
        and _is_near(pod, metadata["name"], labels)
        and _bears(pod.get("tolerations") or (), spec.get("taints") or ())
    )


def _is_near(pod: Object, name: str, labels: Labels) -> bool:
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(
        holds(term.get("matchExpressions") or (), labels)
        and holds(term.get("matchFields") or (), {"metadata.name": name})
        for term in required["nodeSelectorTerms"]
    )


def _bears(tolerations: Sequence[Object], taints: Sequence[Object]) -> bool:
    repelling = [taint for taint in taints if taint.get("effect") in _REPELS]
    return all(any(_tolerates(each, taint) for each in tolerations) for taint in repelling)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    key = toleration.get("key")
    if toleration.get("operator") == "Exists":
        return key in (None, "", taint["key"])
    return bool(key == taint["key"] and (toleration.get("value") or "") == taint.get("value", ""))
