"""The schema of the chart's values, deploy/helm/splitserve/values.schema.json, to standard output.

Options of the router and of pools are those of the command line, in camelCase; what the chart
itself says to a process, such as its ports, is no option there. Every object refuses keys that it
does not know, and Helm names them.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import Any

from cluster.common_options import ModelOptions
from cluster.config import RouterOptions, WorkerOptions
from cluster.identity import Role
from cluster.option_value import OptionSpec
from cluster.options import option_specs
from cluster.planner_options import PlannerOptions

Schema = dict[str, Any]
_SAID_BY_THE_CHART = frozenset(
    {
        *("model", "host", "port", "grpc_port", "fleet_port", "ext_proc_port"),
        *("fleet_host", "fleet_metrics_port", "api_keys", "tls_cert", "tls_key", "store"),
        *("insecure", "vllm_key_file", "role", "worker_id", "pool", "metrics_port"),
        *("kv_events_port", "kv_replay_port", "router", "advertise_host", "device", "kubernetes"),
        *("pools",),
    }
)
_NO_OPTION_THERE = frozenset(
    {
        *("spare", "rank_launcher", "ray_address", "ray_listen", "ray_hosts", "ray_wait_s"),
        "tls_client_ca",
    }
)
"""Of supervisors and Ray; and probes show no certificate."""
TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "maxLength": 40, "pattern": "^([a-z]([-a-z0-9]*[a-z0-9])?)?$"}
NAMESPACE: Schema = {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$"}
CLASS: Schema = {"type": "string", "pattern": "^([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?)?$"}
ADDRESS: Schema = {"type": "string", "pattern": "^([-.a-z0-9]+:[0-9]+)?$"}
FLAG: Schema = {"type": "boolean"}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65_535}
MINUTES: Schema = {"type": "integer", "minimum": 1}
COUNT: Schema = {"type": "integer", "minimum": 0}
ID: Schema = {"type": ["integer", "null"], "minimum": 1}
QUANTITY: Schema = {"type": ["string", "number"], "pattern": "^[0-9.]+[a-zA-Z]*$"}
LABELS: Schema = {"type": "object", "additionalProperties": TEXT}
FREE: Schema = {"type": "object"}
LIST: Schema = {"type": "array", "items": FREE}


def chart_schema() -> Schema:
    """The whole document."""
    values = keys(
        {
            "nameOverride": NAME,
            "image": _images(),
            "model": _model(),
            "router": _router(),
            "worker": _worker(),
            "pools": {"type": "object", "additionalProperties": _pool(), "propertyNames": NAME},
            "planner": _planner(),
            "gateway": _gateway(),
            "topology": keys({"pairKey": TEXT, "groupKey": TEXT, "groupExclusive": FLAG}),
            "apiKeys": _api_keys(),
            "jobs": keys({"podAnnotations": LABELS, "podLabels": LABELS}),
            "fleet": keys({"existingSecret": TEXT, "tls": _certificate()}),
            "tls": _certificate(dnsNames={"type": "array", "items": TEXT}, hasCa=FLAG),
            "networkPolicy": keys({"enabled": FLAG, "clients": LIST, "metrics": LIST}),
            "podDisruptionBudget": keys(
                {"enabled": FLAG, "maxUnavailable": {"type": ["integer", "string"]}}
            ),
            "podSecurity": keys(dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), ID)),
            "serviceAccount": keys({"name": TEXT, "annotations": LABELS}),
            "metrics": _metrics(),
            "global": FREE,
        }
    )
    return {"$schema": "http://json-schema.org/draft-07/schema#", **values, **_one_who_sizes()}


def keys(properties: Mapping[str, Schema], required: tuple[str, ...] = ()) -> Schema:
    """Of an object that has no others."""
    schema = {"type": "object", "additionalProperties": False, "properties": dict(properties)}
    return {**schema, "required": list(required)} if required else schema


def in_camel_case(name: str) -> str:
    """max_num_seqs is maxNumSeqs."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def chart_options(cls: type) -> dict[str, OptionSpec]:
    """The options of one kind of process that an operator gives in the chart, by key."""
    own = {} if cls is ModelOptions else option_specs(ModelOptions)
    left_out = _SAID_BY_THE_CHART | _NO_OPTION_THERE | own.keys()
    return {
        in_camel_case(name): spec
        for name, spec in option_specs(cls).items()
        if name not in left_out
    }


def option_schema(spec: OptionSpec) -> Schema:
    """Of one option; null is its default. Limits are the command line's own."""
    schema: Schema = {"description": spec.help}
    if spec.choices or issubclass(spec.kind, enum.Enum):
        members = spec.choices or tuple(str(member.value) for member in spec.kind)  # type: ignore[attr-defined]
        return {**schema, "enum": [*members, None]}
    kinds = {bool: ["boolean"], int: ["integer"], float: ["number"], str: ["string"]}[spec.kind]
    limits: Schema = {"minimum": spec.low, "maximum": spec.high}
    if spec.name.endswith("_bytes"):
        kinds, limits["pattern"] = [*kinds, "string"], r"^[0-9]+ *([KMGT]iB|B)?$"
    if spec.kind is float:  # --set makes text of 0.5
        kinds, limits["pattern"] = [*kinds, "string"], r"^[0-9]+(\.[0-9]+)?$"
    given = {name: limit for name, limit in limits.items() if limit is not None}
    return {**schema, "type": [*kinds, "null"], **given}


def _options(cls: type) -> Schema:
    return keys({name: option_schema(spec) for name, spec in chart_options(cls).items()})


def _images() -> Schema:
    image = keys({"repository": TEXT, "tag": TEXT, "digest": TEXT})
    pull = {"enum": ["Always", "IfNotPresent", "Never"]}
    registry: Schema = {"type": "string", "pattern": "^([^/].*[^/])?$"}
    arch = {"enum": ["amd64", "arm64", ""]}
    both = {"registry": registry, "arch": arch, "pullPolicy": pull, "pullSecrets": LIST}
    return keys({**both, "router": image, "worker": image})


def _model() -> Schema:
    access = {"enum": ["ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]}
    cache = {"size": QUANTITY, "claim": TEXT, "create": FLAG, "storageClass": TEXT}
    cache |= {"readOnly": FLAG, "warmUp": FLAG, "warmUpMinutes": MINUTES, "image": TEXT}
    return keys(
        {
            "name": {"type": "string", "minLength": 1},
            "options": _options(ModelOptions),
            "authSecret": _secret_key(),
            "cache": keys({**cache, "accessMode": access}),
        }
    )


def _gateway() -> Schema:
    pool = keys({"enabled": FLAG, "failureMode": {"enum": ["FailClose", "FailOpen"]}})
    names = {"type": "array", "items": TEXT}
    return keys({"parentRefs": LIST, "hostnames": names, "inferencePool": pool})


def _pod() -> dict[str, Schema]:
    return {
        "resources": keys({"requests": FREE, "limits": FREE}),
        "env": LIST,
        "extraVolumes": LIST,
        "extraVolumeMounts": LIST,
        "podAnnotations": LABELS,
        "podLabels": LABELS,
        "nodeSelector": LABELS,
        "tolerations": LIST,
        "affinity": FREE,
        "topologySpreadConstraints": LIST,
        "priorityClassName": TEXT,
    }


def _router() -> Schema:
    service = {"port": PORT, "grpcPort": PORT, "annotations": LABELS}
    service["externalTrafficPolicy"] = {"enum": ["", "Cluster", "Local"]}
    kinds = {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]}
    percent = {"type": "integer", "minimum": 1, "maximum": 100}
    seconds = {"type": "number", "minimum": 1, "maximum": 3600}
    return keys(
        {
            "replicas": COUNT,
            "store": keys({"url": TEXT, "secret": _secret_key()}),
            "vllmPods": keys(
                {
                    "selector": TEXT,
                    "namespace": NAMESPACE,
                    "port": PORT,
                    "scheme": {"enum": ["http", "https"]},
                    "leaseS": seconds,
                }
            ),
            "vllmKey": _secret_key(),
            "options": _options(RouterOptions),
            "service": keys({"type": kinds, **service}),
            "autoscaling": keys({"enabled": FLAG, "maxReplicas": COUNT, "cpuPercent": percent}),
            **_pod(),
        }
    )


def _worker_keys() -> dict[str, Schema]:
    index = {"type": ["integer", "null"], "minimum": 0}
    target = {"type": "number", "exclusiveMinimum": 0}
    rdma = {"resource": TEXT, "count": COUNT}
    return {
        "replicas": COUNT,
        "options": _options(WorkerOptions),
        "gpus": keys({"count": COUNT, "resource": TEXT}),
        "hosts": {"type": "integer", "minimum": 1, "maximum": 64},
        "rayCluster": keys(
            {"address": ADDRESS, "secret": _secret_key(), "insecure": FLAG, "peers": LIST}
        ),
        "surge": {"type": ["integer", "null"], "minimum": 0},
        "shm": QUANTITY,
        "rdma": keys({**rdma, "networks": TEXT, "gidIndex": index, "ipcLock": FLAG}),
        "autoscaling": keys({"enabled": FLAG, "maxReplicas": COUNT, "target": target}),
        "imageMinutes": {"type": ["integer", "null"], "minimum": 0},
        "startupMinutes": MINUTES,
        "runtimeClassName": CLASS,
        "schedulerName": CLASS,
        **_pod(),
    }


def _worker() -> Schema:
    return keys(_worker_keys())


def _pool() -> Schema:
    role = {"enum": [str(role.value) for role in Role]}
    return keys({"role": role, **_worker_keys()}, ("role",)) | {"type": ["object", "null"]}


def _api_keys() -> Schema:
    flags = {"enabled": FLAG, "inStore": FLAG}
    return keys({**flags, "existingSecret": TEXT, "testSecret": _secret_key()})


def _planner() -> Schema:
    sizes = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}}
    options = _options(PlannerOptions)
    flags = {"enabled": FLAG, "seesNodes": FLAG}
    return keys({**flags, "maxReplicas": sizes, "options": options, **_pod()})


def _one_who_sizes() -> Schema:
    """Of pools: KEDA or the planner. A planner has pools."""
    is_off = {"properties": {"autoscaling": {"properties": {"enabled": {"const": False}}}}}
    is_on = {"properties": {"enabled": {"const": True}}, "required": ["enabled"]}
    return {
        "if": {"properties": {"planner": is_on}, "required": ["planner"]},
        "then": {
            "properties": {
                "planner": {"properties": {"maxReplicas": {"minProperties": 1}}},
                "worker": is_off,
                "pools": {"additionalProperties": is_off},
            }
        },
    }


def _secret_key() -> Schema:
    return keys({"name": TEXT, "key": TEXT})


def _certificate(**more: Schema) -> Schema:
    issuer = keys({"name": TEXT, "kind": {"enum": ["Issuer", "ClusterIssuer"]}})
    return keys({"secret": TEXT, "issuer": issuer, **more})


def _metrics() -> Schema:
    monitor = {"enabled": {"type": ["boolean", "null"]}, "interval": TEXT, "labels": LABELS}
    labelled = keys({"enabled": FLAG, "labels": LABELS})
    return keys(
        {
            "prometheus": TEXT,
            "podMonitor": keys(monitor),
            "alerts": labelled,
            "boards": labelled,
        }
    )


if __name__ == "__main__":
    print(json.dumps(chart_schema(), indent=2))
