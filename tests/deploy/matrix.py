"""Values of the chart in which each two choices of different kinds meet at least once."""

from __future__ import annotations

from copy import deepcopy
from itertools import combinations, product
from typing import Any

from tests.deploy.chart import Manifest

_TWO_OF_A_KIND: Manifest = {
    "worker": {"gpus": {"count": 4}, "options": {"tensorParallelSize": 4}},
    "pools": {
        "prefill": {"nodeSelector": {"gpu": "l40s"}},
        "decode": {"replicas": 4, "nodeSelector": {"gpu": "h200"}},
        "decode-h100": {"role": "decode", "nodeSelector": {"gpu": "h100"}},
    },
}
_RAY: Manifest = {
    "address": "ray-head:6379",
    "secret": {"name": "ray"},
    "peers": [{"podSelector": {"matchLabels": {"ray.io/cluster": "ours"}}}],
}
AXES: dict[str, dict[str, Manifest]] = {
    "roles": {
        "both": {},
        "decode alone": {"pools": {"prefill": None}},
        "three pools on two kinds of GPU": _TWO_OF_A_KIND,
    },
    "tls": {
        "none": {},
        "of an issuer": {
            "fleet": {"tls": {"issuer": {"name": "f"}}},
            "tls": {"issuer": {"name": "t"}},
        },
        "of a secret": {"fleet": {"tls": {"secret": "f"}}, "tls": {"secret": "t", "hasCa": True}},
    },
    "rdma": {
        "none": {},
        "roce": {"worker": {"rdma": {"resource": "rdma/ib", "networks": "fast", "gidIndex": 3}}},
    },
    "ranks": {
        "one": {},
        "group": {
            "worker": {"hosts": 2, "options": {"tensorParallelSize": 8}},
            "topology": {"groupKey": "topology.kubernetes.io/rack", "pairKey": "zone"},
        },
        "Ray cluster": {"worker": {"rayCluster": _RAY, "options": {"tensorParallelSize": 8}}},
    },
    "scaled by": {
        "hand": {},
        "KEDA": {
            "worker": {"autoscaling": {"enabled": True}},
            "metrics": {"prometheus": "http://prometheus:9090"},
        },
        "planner": {"planner": {"enabled": True, "seesNodes": True, "maxReplicas": {"decode": 8}}},
    },
    "secrets": {
        "made": {},
        "there": {
            "fleet": {"existingSecret": "token"},
            "apiKeys": {"existingSecret": "keys"},
            "serviceAccount": {"name": "ours"},
            "model": {"authSecret": {"name": "hub"}},
        },
    },
}
"""What may be chosen, by kind; the first of each is the default."""


def all_pairs() -> dict[str, Manifest]:
    """By the names of what was chosen, other than by default."""
    names = list(AXES)
    rows = list(product(*AXES.values()))
    missing = set().union(*map(_pairs, rows))
    chosen: dict[str, Manifest] = {}
    while missing:
        row = max(rows, key=lambda each: len(_pairs(each) & missing))
        missing -= _pairs(row)
        parts = [AXES[name][choice] for name, choice in zip(names, row, strict=True)]
        words = [c for n, c in zip(names, row, strict=True) if c != next(iter(AXES[n]))]
        chosen[", ".join(words) or "all by default"] = _merged(parts)
    return chosen


def _pairs(row: tuple[str, ...]) -> set[tuple[tuple[int, str], ...]]:
    return set(combinations(enumerate(row), 2))


def _merged(parts: list[Manifest]) -> Manifest:
    found: Manifest = {}
    for part in parts:
        _merge(found, deepcopy(part))
    return found


def _merge(into: dict[str, Any], part: dict[str, Any]) -> None:
    for key, value in part.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
