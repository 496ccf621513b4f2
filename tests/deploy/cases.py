"""Values that the chart is tried with, by what they ask for."""

from __future__ import annotations

import pytest

from tests.deploy.chart import Manifest
from tests.deploy.matrix import all_pairs
from tests.deploy.test_gateway import POOL, ROUTE

VERSIONS = [f"1.{minor}" for minor in range(29, 38)]
GPUS: Manifest = {
    "model": {
        "name": "hf://meta/model",
        "authSecret": {"name": "hub"},
        "cache": {"claim": "models"},
    },
    "router": {
        "replicas": 3,
        "store": {"secret": {"name": "redis"}},
        "autoscaling": {"enabled": True},
        "options": {"drainTimeoutS": 90.5},
    },
    "worker": {
        "gpus": {"count": 4},
        "options": {"tensorParallelSize": 4},
        "rdma": {"resource": "rdma/ib", "networks": "fast", "gidIndex": 3},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    },
    "pools": {
        "decode": {"replicas": 4, "nodeSelector": {"gpu": "h200"}},
        "decode-h100": {"role": "decode", "replicas": 2, "podLabels": {"team": "a"}},
    },
    "topology": {"pairKey": "topology.kubernetes.io/rack"},
    "metrics": {"podMonitor": {"enabled": True}},
}
CERTIFICATES: Manifest = {
    "fleet": {"tls": {"issuer": {"name": "fleet"}}},
    "tls": {"issuer": {"name": "public", "kind": "ClusterIssuer"}},
}
SECRETS: Manifest = {
    "fleet": {"existingSecret": "token", "tls": {"secret": "fleet-certs"}},
    "apiKeys": {"existingSecret": "keys"},
    "tls": {"secret": "certs"},
    "serviceAccount": {"name": "ours"},
    "model": {"cache": {"claim": "new", "create": True, "storageClass": "fast"}},
}
OPEN: Manifest = {
    "apiKeys": {"enabled": False},
    "networkPolicy": {"enabled": False},
    "podDisruptionBudget": {"enabled": False},
    "pools": {"prefill": None},
}
VLLM: Manifest = {
    "router": {"vllmPods": {"selector": "app=vllm,tier in (a,b)", "namespace": "chat"}},
    "pools": {"prefill": None, "decode": None},
}
KEDA: Manifest = {
    "metrics": {
        "prometheus": "http://prometheus.monitoring:9090",
        "alerts": {"enabled": True},
        "boards": {"enabled": True},
    },
    "worker": {"autoscaling": {"enabled": True}},
}
WARM: Manifest = {
    "model": {
        "cache": {"claim": "models", "create": True, "warmUp": True},
        "authSecret": {"name": "hub"},
    },
    "worker": {"env": [{"name": "HF_ENDPOINT", "value": "http://mirror"}]},
}
READ_ONLY: Manifest = {"model": {"cache": {"claim": "models", "readOnly": True}}}
ADAPTERS: Manifest = {
    "pools": {
        "decode": {"options": {"maxNumSeqs": 32}},
        "decode-adapters": {
            "role": "decode",
            "options": {"adapters": "/adapters", "adapterRanks": 128},
            "extraVolumes": [
                {
                    "name": "adapters",
                    "persistentVolumeClaim": {"claimName": "adapters", "readOnly": True},
                }
            ],
            "extraVolumeMounts": [{"name": "adapters", "mountPath": "/adapters", "readOnly": True}],
        },
    }
}
"""One pool has them, from a claim."""
PROMETHEUS: Manifest = {"podSelector": {"matchLabels": {"app": "prometheus"}}}
MATRIX = {
    "defaults": {},
    "vllm": VLLM,
    "gpus": GPUS,
    "certificates": CERTIFICATES,
    "secrets": SECRETS,
    "open": OPEN,
    "keda": KEDA,
    "gateway": ROUTE,
    "inference pool": POOL,
    "warm-up": WARM,
    "read-only cache": READ_ONLY,
    "adapters": ADAPTERS,
    **all_pairs(),
}
each_of_the_matrix = pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX.keys())
