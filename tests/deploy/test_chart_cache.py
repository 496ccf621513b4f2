"""Where a release of the chart has its models from."""

from __future__ import annotations

import pytest

from tests.deploy.cases import READ_ONLY, VERSIONS, WARM
from tests.deploy.chart import Manifest, helm, refusal, rendered
from tests.deploy.kubernetes_schemas import check


@pytest.mark.parametrize("readies", [WARM, READ_ONLY], ids=["warm-up", "read-only cache"])
def test_nobody_but_the_job_writes_to_a_cache_that_is_filled_before(readies: Manifest) -> None:
    release = rendered(readies)
    for name in release.kind("Deployment"):
        spec = release.pods[name]["spec"]
        claims = {v["name"]: v["persistentVolumeClaim"] for v in spec["volumes"] if _is_claim(v)}
        assert claims == {"models": {"claimName": "models", "readOnly": True}}
        (mount,) = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "models"]
        assert mount["readOnly"] and mount["subPath"] == "models"
        assert mount["mountPath"] == f"{release.environ(name)['SPLITSERVE_HOME']}/models"


def test_a_job_fetches_the_model_before_anything_else_is_made() -> None:
    release = rendered(WARM)
    (job,) = release.kind("Job").values()
    (claim,) = release.kind("PersistentVolumeClaim").values()
    hooks = [each["metadata"]["annotations"] for each in (claim, job)]
    assert all(hook["helm.sh/hook"] == "pre-install,pre-upgrade" for hook in hooks)
    assert int(hooks[0]["helm.sh/hook-weight"]) < int(hooks[1]["helm.sh/hook-weight"])
    assert hooks[0]["helm.sh/resource-policy"] == "keep"
    assert "succeeded" not in hooks[0]["helm.sh/hook-delete-policy"], "models stay"
    assert "serviceAccountName" not in job["spec"]["template"]["spec"], "there is none yet"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["models", "pull", "smollm2"]
    environ = release.environ("demo-warm-up")
    assert environ["HF_ENDPOINT"] == "http://mirror"
    assert "HF_TOKEN" in {item["name"] for item in release.env("demo-warm-up")}
    assert not rendered().kind("Job")


def test_the_job_fetches_what_guesses_too_as_nobody_else_may_write_it() -> None:
    draft, head = "hf://owner/small@0123abc", "hf://owner/eagle"
    guesses: Manifest = {
        "model": WARM["model"],
        "worker": {"options": {"speculation": draft}},
        "pools": {
            "prefill": {"options": {"speculation": "heads"}},
            "decode": {"role": "decode", "options": {"speculation": head}},
            "more": {"role": "decode"},
            "local": {"role": "decode", "options": {"speculation": "/models/small"}},
        },
    }
    job = rendered(guesses).pods["demo-warm-up"]
    (container,) = job["spec"]["containers"]
    pulled = container["args"]
    assert pulled[:3] == ["models", "pull", "smollm2"]
    assert sorted(pulled[3:]) == sorted([draft, head])


@pytest.mark.parametrize("key", ["create", "readOnly", "warmUp"])
def test_a_cache_that_is_prepared_has_a_claim(key: str) -> None:
    told = refusal({"model": {"cache": {key: True}}})
    assert f"model.cache.{key}" in told and "model.cache.claim" in told


IMAGE: Manifest = {"model": {"cache": {"image": "registry.example/models@sha256:0123"}}}


def test_models_come_from_an_image_that_every_router_and_worker_mounts_and_nobody_writes_to() -> (
    None
):
    release = rendered(IMAGE)
    for name in release.kind("Deployment"):
        spec = release.pods[name]["spec"]
        (volume,) = [v for v in spec["volumes"] if v["name"] == "models"]
        reference = "registry.example/models@sha256:0123"
        assert volume["image"] == {"reference": reference, "pullPolicy": "IfNotPresent"}
        (mount,) = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "models"]
        assert mount["readOnly"] and "subPath" not in mount
        assert mount["mountPath"] == f"{release.environ(name)['SPLITSERVE_HOME']}/models"
    for version in VERSIONS[2:]:
        for manifest in release.manifests:
            check(manifest, version)


def test_an_image_of_models_is_refused_where_no_pod_could_mount_it_and_beside_a_claim() -> None:
    old = helm("template", "demo", "--kube-version", "1.30.2", values=IMAGE)
    assert "model.cache.image: image volumes are of Kubernetes 1.31" in old.stderr
    both = {"model": {"cache": {"image": "models:1", "claim": "models"}}}
    assert "from an image or from a claim" in refusal(both)


def _is_claim(volume: Manifest) -> bool:
    return "persistentVolumeClaim" in volume
