"""Specs of what others define, as far as the chart says them, and no other key.

After Gateway API 1.4, its inference extension 1.0, KEDA 2.20, the Prometheus operator 0.86,
cert-manager 1.19, LeaderWorkerSet 0.9 and KubeRay 1.7. Kubernetes' own kinds have their whole
schemas (`kubernetes_validate`).
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def _keys(properties: Schema, *required: str) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": list(required),
    }


TEXT: Schema = {"type": "string", "minLength": 1}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
BACKEND = _keys({"group": TEXT, "kind": TEXT, "name": TEXT, "port": PORT}, "name")
MATCH = _keys({"path": _keys({"type": {"enum": ["PathPrefix", "Exact"]}, "value": TEXT})})
GATEWAY = {
    "HTTPRoute": _keys(
        {
            "parentRefs": {
                "type": "array",
                "items": _keys(
                    {"name": TEXT, "namespace": TEXT, "sectionName": TEXT, "port": PORT}, "name"
                ),
            },
            "hostnames": {"type": "array", "items": TEXT, "maxItems": 16},
            "rules": {
                "type": "array",
                "items": _keys(
                    {
                        "matches": {"type": "array", "items": MATCH},
                        "timeouts": _keys({"request": {"pattern": "^[0-9]+(h|m|s|ms)$"}}),
                        "backendRefs": {"type": "array", "items": BACKEND},
                    }
                ),
            },
        }
    ),
    "InferencePool": _keys(
        {
            "selector": _keys({"matchLabels": {"additionalProperties": TEXT}}, "matchLabels"),
            "targetPorts": {
                "type": "array",
                "items": _keys({"number": PORT}, "number"),
                "minItems": 1,
                "maxItems": 8,
            },
            "endpointPickerRef": _keys(
                {
                    "name": TEXT,
                    "port": _keys({"number": PORT}, "number"),
                    "failureMode": {"enum": ["FailOpen", "FailClose"]},
                },
                "name",
            ),
        },
        "selector",
        "targetPorts",
        "endpointPickerRef",
    ),
}
NAMES: Schema = {"type": "array", "items": TEXT}
DURATION: Schema = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}
LABELS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
SELECTOR = _keys({"matchLabels": LABELS})
COUNT: Schema = {"type": "integer", "minimum": 0}
POLICY = _keys(
    {"type": {"enum": ["Percent", "Pods"]}, "value": PORT, "periodSeconds": PORT},
    "type",
    "value",
    "periodSeconds",
)
RULES = _keys({"policies": {"type": "array", "items": POLICY}, "stabilizationWindowSeconds": COUNT})
KEDA = {
    "ScaledObject": _keys(
        {
            "scaleTargetRef": _keys({"apiVersion": TEXT, "kind": TEXT, "name": TEXT}, "name"),
            "minReplicaCount": COUNT,
            "maxReplicaCount": COUNT,
            "pollingInterval": COUNT,
            "fallback": _keys(
                {
                    "failureThreshold": COUNT,
                    "replicas": COUNT,
                    "behavior": {
                        "enum": [
                            *("static", "currentReplicas", "scalingModifiers"),
                            *("currentReplicasIfHigher", "currentReplicasIfLower"),
                        ]
                    },
                },
                "failureThreshold",
                "replicas",
            ),
            "advanced": _keys(
                {
                    "horizontalPodAutoscalerConfig": _keys(
                        {"behavior": _keys({"scaleUp": RULES, "scaleDown": RULES})}
                    )
                }
            ),
            "triggers": {
                "type": "array",
                "items": _keys(
                    {
                        "type": {"enum": ["prometheus"]},
                        "metricType": {"enum": ["AverageValue", "Value", "Utilization"]},
                        "metadata": _keys(
                            {
                                "serverAddress": TEXT,
                                "query": TEXT,
                                "threshold": TEXT,
                                "ignoreNullValues": {"enum": ["true", "false"]},
                            },
                            "serverAddress",
                            "query",
                            "threshold",
                        ),
                    },
                    "type",
                    "metadata",
                ),
            },
        },
        "scaleTargetRef",
        "triggers",
    )
}
PROMETHEUS = {
    "PodMonitor": _keys(
        {
            "selector": SELECTOR,
            "podTargetLabels": NAMES,
            "podMetricsEndpoints": {
                "type": "array",
                "items": _keys(
                    {
                        "port": TEXT,
                        "interval": DURATION,
                        "scheme": {"enum": ["http", "https"]},
                        "tlsConfig": _keys({"insecureSkipVerify": {"type": "boolean"}}),
                    }
                ),
            },
        },
        "selector",
    ),
    "PrometheusRule": _keys(
        {
            "groups": {
                "type": "array",
                "items": _keys(
                    {
                        "name": TEXT,
                        "interval": DURATION,
                        "rules": {
                            "type": "array",
                            "items": _keys(
                                {
                                    "alert": TEXT,
                                    "expr": TEXT,
                                    "for": DURATION,
                                    "labels": LABELS,
                                    "annotations": LABELS,
                                },
                                "expr",
                            ),
                        },
                    },
                    "name",
                ),
            }
        }
    ),
}
CERT_MANAGER = {
    "Certificate": _keys(
        {
            "secretName": TEXT,
            "dnsNames": NAMES,
            "usages": NAMES,
            "privateKey": _keys({"algorithm": {"enum": ["RSA", "ECDSA", "Ed25519"]}, "size": PORT}),
            "issuerRef": _keys(
                {"name": TEXT, "kind": {"enum": ["Issuer", "ClusterIssuer"]}}, "name"
            ),
        },
        "secretName",
        "issuerRef",
    )
}
INT_OR_TEXT: Schema = {"type": ["integer", "string"]}
POD_TEMPLATE = _keys({"metadata": {"type": "object"}, "spec": {"type": "object"}}, "spec")
"""Kubernetes' own, which has the rest."""
LEADER_WORKER_SET = {
    "LeaderWorkerSet": _keys(
        {
            "replicas": {"type": "integer", "minimum": 0, "maximum": 1_000_000},
            "startupPolicy": {"enum": ["LeaderCreated", "LeaderReady"]},
            "networkConfig": _keys({"subdomainPolicy": {"enum": ["Shared", "UniquePerReplica"]}}),
            "rolloutStrategy": _keys(
                {
                    "type": {"enum": ["RollingUpdate"]},
                    "rollingUpdateConfiguration": _keys(
                        {
                            "partition": COUNT,
                            "maxUnavailable": INT_OR_TEXT,
                            "maxSurge": INT_OR_TEXT,
                        }
                    ),
                },
                "type",
            ),
            "leaderWorkerTemplate": _keys(
                {
                    "size": COUNT,
                    "restartPolicy": {
                        "enum": [
                            *("Default", "RecreateGroupOnPodRestart", "RecreateGroupAfterStart"),
                            "None",
                        ]
                    },
                    "leaderTemplate": POD_TEMPLATE,
                    "workerTemplate": POD_TEMPLATE,
                },
                "workerTemplate",
            ),
        },
        "leaderWorkerTemplate",
    )
}
_RAY_PARAMS: Schema = {"type": "object", "additionalProperties": TEXT}
RAY_CLUSTER = _keys(
    {
        "rayVersion": TEXT,
        "authOptions": _keys({"mode": {"enum": ["disabled", "token"]}, "secretName": TEXT}),
        "headGroupSpec": _keys(
            {"rayStartParams": _RAY_PARAMS, "template": POD_TEMPLATE}, "template"
        ),
        "workerGroupSpecs": {
            "type": "array",
            "items": _keys(
                {
                    "groupName": TEXT,
                    "replicas": COUNT,
                    "minReplicas": COUNT,
                    "maxReplicas": COUNT,
                    "rayStartParams": _RAY_PARAMS,
                    "template": POD_TEMPLATE,
                },
                *("groupName", "maxReplicas", "minReplicas", "template"),
            ),
        },
    },
    "headGroupSpec",
)
"""Of examples/raycluster.yaml, which was held once against KubeRay's whole definition."""
FOREIGN: dict[tuple[str, str], Schema] = {
    (version, kind): schema
    for version, kinds in {
        "gateway.networking.k8s.io/v1": {"HTTPRoute": GATEWAY["HTTPRoute"]},
        "inference.networking.k8s.io/v1": {"InferencePool": GATEWAY["InferencePool"]},
        "keda.sh/v1alpha1": KEDA,
        "monitoring.coreos.com/v1": PROMETHEUS,
        "cert-manager.io/v1": CERT_MANAGER,
        "leaderworkerset.x-k8s.io/v1": LEADER_WORKER_SET,
    }.items()
    for kind, schema in kinds.items()
}
"""By version and kind."""
