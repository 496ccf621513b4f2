"""The Ray cluster that examples/raycluster.yaml asks KubeRay for is one that the chart's pools can
join."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.deploy.cases import VERSIONS
from tests.deploy.chart import Manifest, rendered
from tests.deploy.foreign_schemas import RAY_CLUSTER
from tests.deploy.kubernetes_schemas import check

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples/raycluster.yaml"


@pytest.fixture(scope="module")
def cluster() -> Manifest:
    """The object."""
    found: Manifest = yaml.safe_load(FILE.read_text())
    return found


def values() -> Manifest:
    """That its head recommends for the chart."""
    comment = [line[1:] for line in FILE.read_text().splitlines() if line.startswith("#")]
    start = comment.index("   pools:")
    block = comment[start : comment.index("", start)]
    found: Manifest = yaml.safe_load("\n".join(block))
    return found


def groups(cluster: Manifest) -> list[Manifest]:
    spec = cluster["spec"]
    return [spec["headGroupSpec"], *spec["workerGroupSpecs"]]


def test_it_has_no_key_that_kuberay_does_not_know_and_its_pods_are_valid(
    cluster: Manifest,
) -> None:
    jsonschema.validate(cluster["spec"], RAY_CLUSTER)
    kind = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "of-a-group"}}
    for group in groups(cluster):
        for version in VERSIONS:
            template = {**kind, "template": group["template"]}
            check(template, version)


def test_its_pods_are_as_those_of_workers(cluster: Manifest) -> None:
    own = rendered(values()).pods["demo-decode"]["spec"]
    (worker,) = own["containers"]
    environ = {item["name"]: item.get("value") for item in worker["env"]}
    for group in groups(cluster):
        spec = group["template"]["spec"]
        (container,) = spec["containers"]
        kept = {name: own["securityContext"][name] for name in spec["securityContext"]}
        assert spec["securityContext"] == kept
        assert container["securityContext"] == worker["securityContext"]
        assert container["image"] == worker["image"].replace("localhost/", "REGISTRY/")
        for item in container["env"]:
            assert environ[item["name"]] == item["value"]
        mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {"/tmp", "/dev/shm", environ["SPLITSERVE_HOME"]} == mounted


def test_the_values_beside_it_name_it_and_have_a_rank_for_each_of_its_gpus(
    cluster: Manifest,
) -> None:
    pool, name = values()["pools"]["decode"], cluster["metadata"]["name"]
    joined = pool["rayCluster"]
    assert joined["address"] == f"{name}-head-svc:6379"
    assert joined["secret"] == {"name": name, "key": "auth_token"}
    assert joined["peers"] == [{"podSelector": {"matchLabels": {"ray.io/cluster": name}}}]
    ranks = pool["options"]["tensorParallelSize"]
    assert ranks == pool["gpus"]["count"] + sum(map(_num_gpus, cluster["spec"]["workerGroupSpecs"]))
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert f"ray=={cluster['spec']['rayVersion']}" in pins


def _num_gpus(group: dict[str, Any]) -> int:
    (container,) = group["template"]["spec"]["containers"]
    return int(group["replicas"]) * int(container["resources"]["limits"]["nvidia.com/gpu"])
