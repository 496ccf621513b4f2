"""The definition of LeaderWorkerSets that a cluster has when somebody has installed them.

As in version 0.9, without fields that nothing here uses.
"""

from __future__ import annotations

from typing import Any

from tests.mini_cluster.history import Object
from tests.mini_cluster.schemas import reference

_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_POD_TEMPLATE = reference("io.k8s.api.core.v1.PodTemplateSpec")
_COUNT = {"type": "integer", "minimum": 0}
_INT_OR_TEXT = {"x-kubernetes-int-or-string": True}


def _keys(properties: dict[str, Any], *required: str) -> Object:
    made: Object = {"type": "object", "properties": properties}
    return made | {"required": list(required)} if required else made


_SPEC = _keys(
    {
        "replicas": _COUNT,
        "startupPolicy": {"type": "string", "enum": ["LeaderCreated", "LeaderReady"]},
        "rolloutStrategy": _keys(
            {
                "type": {"type": "string", "enum": ["RollingUpdate"]},
                "rollingUpdateConfiguration": _keys(
                    {"partition": _COUNT, "maxUnavailable": _INT_OR_TEXT, "maxSurge": _INT_OR_TEXT}
                ),
            },
            "type",
        ),
        "leaderWorkerTemplate": _keys(
            {
                "size": _COUNT,
                "restartPolicy": {
                    "type": "string",
                    "enum": [
                        *("Default", "RecreateGroupOnPodRestart", "RecreateGroupAfterStart"),
                        "None",
                    ],
                },
                "leaderTemplate": _POD_TEMPLATE,
                "workerTemplate": _POD_TEMPLATE,
            },
            "workerTemplate",
        ),
    },
    "leaderWorkerTemplate",
)
_SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.hpaPodSelector",
}
LEADER_WORKER_SETS: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "leaderworkersets.leaderworkerset.x-k8s.io"},
    "spec": {
        "group": "leaderworkerset.x-k8s.io",
        "scope": "Namespaced",
        "names": {
            "plural": "leaderworkersets",
            "singular": "leaderworkerset",
            "kind": "LeaderWorkerSet",
            "listKind": "LeaderWorkerSetList",
            "shortNames": ["lws"],
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}, "scale": _SCALE},
                "schema": {
                    "openAPIV3Schema": _keys({"spec": _SPEC, "status": _ANYTHING}),
                },
            }
        ],
    },
}
