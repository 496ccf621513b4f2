"""Whether a pod may be on a node, by what both say: labels, affinity to nodes, taints. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.scaling.groups import Object
from cluster.scaling.label_selectors import Labels, holds

_REPELS = ("NoSchedule", "NoExecute")
_OF_A_CORDON = "node.kubernetes.io/unschedulable"
"""A taint that a node has beside the word in its spec."""


def may_be_on(pod: Object, node: Object) -> bool:
    """Of a pod's spec, and a node that is there."""
    return not is_cordoned(node) and suits(pod, node)


def is_cordoned(node: Object) -> bool:
    """Nothing new comes there, whatever is free."""
    return bool((node.get("spec") or {}).get("unschedulable"))


def suits(pod: Object, node: Object) -> bool:
    """Whether it is a node for such pods, cordoned or not."""
    spec, metadata = node.get("spec") or {}, node["metadata"]
    labels = metadata.get("labels") or {}
    wanted = pod.get("nodeSelector") or {}
    taints = [taint for taint in spec.get("taints") or () if taint["key"] != _OF_A_CORDON]
    return (
        all(labels.get(key) == value for key, value in wanted.items())
        and _is_near(pod, metadata["name"], labels)
        and _bears(pod.get("tolerations") or (), taints)
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
