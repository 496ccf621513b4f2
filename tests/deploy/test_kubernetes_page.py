"""What docs/kubernetes.md tells an operator to write does that, and its numbers are right."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
import yaml

from tests.deploy.chart import Manifest, Rendered, mounted, rendered

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/kubernetes.md").read_text()
_BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)
_GIB = 1 << 30
MINIKUBE_CPU = 2
"""Unless it is told otherwise."""
CLUSTER_S_OWN_CPU = 0.75
"""That its own pods ask for: API server 0.25, controllers 0.2, and 0.1 each of etcd, scheduler and
CoreDNS, as kubeadm writes them."""


def block_of(chapter: str) -> Manifest:
    """The first of YAML in a chapter."""
    title = re.search(rf"^##+ {chapter}$", PAGE, re.MULTILINE)
    assert title is not None
    found = _BLOCK.search(PAGE, title.end())
    assert found is not None
    values: Manifest = yaml.safe_load(found[1])
    return values


@pytest.mark.parametrize("block", _BLOCK.findall(PAGE), ids=lambda text: text.split("\n", 1)[0])
def test_all_values_of_the_page_are_taken_by_the_chart(block: str) -> None:
    assert rendered(yaml.safe_load(block)).pods


def cores(amount: str) -> Fraction:
    return Fraction(amount[:-1]) / 1000 if amount.endswith("m") else Fraction(amount)


def gibibytes(amount: str) -> Fraction:
    units = {"Mi": 1 << 20, "Gi": _GIB}
    return Fraction(int(amount[:-2]) * units[amount[-2:]], _GIB)


def asked(release: Rendered, *, is_updated: bool = False) -> tuple[float, float]:
    """Cores and GiB of all pods that stay, while they are updated with those that are more."""
    whole = (Fraction(0), Fraction(0))
    for deployment in release.kind("Deployment").values():
        spec = deployment["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        surge = spec["strategy"]["rollingUpdate"]["maxSurge"] if is_updated else 0
        num = spec["replicas"] + surge
        requests = container["resources"]["requests"]
        whole = (
            whole[0] + num * cores(str(requests["cpu"])),
            whole[1] + num * gibibytes(requests["memory"]),
        )
    return float(whole[0]), float(whole[1])


def test_what_a_release_needs_is_what_both_pages_say() -> None:
    assert asked(rendered()) == (5, 9)
    assert "5 CPU and 9Gi of memory in all" in (ROOT / "README.md").read_text()
    assert "5 CPU and 9Gi in all" in PAGE
    assert asked(rendered(), is_updated=True) == (10, 18) and "10 CPU and 18Gi" in PAGE


def test_values_for_a_small_cluster_need_what_the_page_says() -> None:
    small = rendered(block_of("What it needs"))
    assert asked(small) == (0.9, 4.5)
    assert asked(small, is_updated=True) == (1, 5)
    assert "0.9 CPU and 4.5Gi" in PAGE and "1 CPU and 5Gi" in PAGE
    assert asked(small, is_updated=True)[0] + CLUSTER_S_OWN_CPU <= MINIKUBE_CPU
    for pool in ("demo-prefill", "demo-decode"):
        assert small.environ(pool)["SPLITSERVE_NUM_THREADS"] == "1"


@pytest.mark.parametrize("block", _BLOCK.findall(PAGE), ids=lambda text: text.split("\n", 1)[0])
def test_pools_with_gpus_say_with_how_many_threads_they_load(block: str) -> None:
    values = yaml.safe_load(block)
    sections = [values.get("worker"), *values.get("pools", {}).values()]
    for each in sections:
        if each and "gpus" in each:
            assert int(each["resources"]["requests"]["cpu"]) >= 4, each


@pytest.mark.parametrize("model", [{}, {"cache": {"claim": "models", "warmUp": True}}])
def test_every_pod_that_fetches_a_model_is_told_of_an_index_of_one_s_own(model: Manifest) -> None:
    release = rendered({**block_of("Clusters without the public index"), "model": model})
    fetching = {"demo-router", "demo-prefill", "demo-decode"}
    fetching |= {"demo-warm-up"} if model else set()
    for name in fetching:
        assert release.environ(name)["PIP_INDEX_URL"] == "https://pypi.example.com/simple", name
        certificate = release.environ(name)["PIP_CERT"]
        (container,) = release.pods[name]["spec"]["containers"]
        folders = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert str(Path(certificate).parent) in folders, name


def test_the_pools_of_the_page_that_have_adapters_have_their_folder_mounted() -> None:
    release = rendered(block_of("Adapters"))
    folders = {
        name: release.environ(name).get("SPLITSERVE_ADAPTERS")
        for name in ("demo-prefill", "demo-decode")
    }
    assert set(folders.values()) == {"/adapters"}
    for name, folder in folders.items():
        claim = mounted(release, name)[str(folder)]
        assert claim is not None and claim["readOnly"] and claim["claimName"] in PAGE
    assert "/adapters" not in mounted(release, "demo-router")


def test_every_pod_is_kept_out_of_a_mesh_by_what_the_page_says() -> None:
    planner: Manifest = {"enabled": True, "maxReplicas": {"decode": 2}}
    values = block_of("Service meshes")
    values["planner"] = {**values["planner"], **planner}
    values["model"] = {"cache": {"claim": "models", "warmUp": True}}
    values["pools"] = {"decode": {"hosts": 2, "options": {"tensorParallelSize": 2}}}
    pods = rendered(values).pods
    assert len(pods) == 8, pods.keys()
    for name, pod in pods.items():
        labels, annotations = pod["metadata"]["labels"], pod["metadata"]["annotations"]
        assert labels["sidecar.istio.io/inject"] == "false", name
        assert labels["istio.io/dataplane-mode"] == "none", name
        assert annotations["linkerd.io/inject"] == "disabled", name
