"""The README's page "On Kubernetes", as a new operator types it; docs/kubernetes.md begins with the
same commands, for GPUs and with values of one's own."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.deploy.chart import CHART, Manifest, helm, rendered
from tests.deploy.release import CLAIM, VALUES, model_cache
from tests.deploy.test_gateway import POOL, ROUTE
from tests.mini_cluster.images import Image, project_images, repository_of
from tests.mini_cluster.machine import running_cluster
from tests.mini_cluster.runtime import Processes

ROOT = Path(__file__).parents[2]
_TYPED = re.compile(r"# On Kubernetes\n.*?```\n(.*?)```", re.DOTALL)
_VALUES = re.compile(r"with such values:\n\n```yaml\n(.*?)```", re.DOTALL)
README, PAGE = "README.md", "docs/kubernetes.md"
MY_CLUSTER = ["--set", f"model.cache.claim={CLAIM}", "--values", "-"]
"""What this machine needs beside: its cache of models, and room for two engines."""


def commands(page: str = README) -> list[list[str]]:
    found = _TYPED.search((ROOT / page).read_text())
    assert found is not None
    return [shlex.split(line) for line in found.group(1).splitlines()]


def values_of(page: str) -> Manifest:
    """Which the page installs with."""
    found = _VALUES.search((ROOT / page).read_text())
    if found is None:
        return {"image": {"registry": "REGISTRY"}}  # as its command says
    values: Manifest = yaml.safe_load(found.group(1))
    return values


def pushed(typed: list[list[str]]) -> dict[str, Image]:
    """What the registry has then, by repository; no other image is there."""
    built = [words for words in typed if words[0] == "docker" and "--push" in words]
    names = [repository_of(words[words.index("-t") + 1]) for words in built]
    here = project_images()
    return {name: here[name.replace("REGISTRY", "localhost")] for name in names}


def test_both_pages_have_five_commands_and_the_same_but_for_gpus_and_values() -> None:
    readme, page = commands(README), commands(PAGE)
    assert len(readme) == len(page) == 5
    assert not [words for words in (*readme, *page) if "&&" in words], "one command a line"
    own = ["--values", "my-values.yaml"]
    for words, others in zip(readme, page, strict=True):
        if words[:2] == ["helm", "install"]:
            assert words[4:] == ["--set", "image.registry=REGISTRY"]
            assert others == [*words[:4], *own]
        elif words[:2] == ["kubectl", "rollout"]:
            assert others[:-1] == words[:-1]
        else:
            assert others == [re.sub("(?<=-)cpu$", "cuda", word) for word in words]


@pytest.mark.parametrize("page", [README, PAGE])
def test_the_wait_is_as_long_as_the_release_gives_itself(page: str) -> None:
    (wait,) = [words for words in commands(page) if words[:2] == ["kubectl", "rollout"]]
    router = rendered(values_of(page)).kind("Deployment")["demo-router"]["spec"]
    assert wait[-2:] == ["--timeout", f"{router['progressDeadlineSeconds'] // 60}m"]


@pytest.mark.parametrize("page", [README, PAGE])
def test_the_images_that_are_built_are_those_that_are_installed(page: str) -> None:
    built = [words for words in commands(page) if words[0] == "docker"]
    (install,) = [words for words in commands(page) if words[:2] == ["helm", "install"]]
    template = helm("template", install[2], values=values_of(page))
    assert template.returncode == 0, template.stderr
    images = set(re.findall(r"image: (\S+)", template.stdout))
    assert {words[words.index("-t") + 1] for words in built} == images
    dockerfile = (ROOT / "deploy/docker/Dockerfile").read_text()
    for words in built:
        assert re.search(rf"^FROM .* AS {words[words.index('--target') + 1]}$", dockerfile, re.M)


@pytest.mark.parametrize("page", [README, PAGE])
def test_the_images_are_built_for_the_machines_that_pods_then_ask_for(page: str) -> None:
    """Whatever machine they are built on: laptops are often of another kind."""
    for words in (words for words in commands(page) if words[0] == "docker"):
        system, _, arch = words[words.index("--platform") + 1].partition("/")
        assert system == "linux"
        for pod in rendered(values_of(page)).pods.values():
            assert pod["spec"]["nodeSelector"]["kubernetes.io/arch"] == arch


@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.timeout(600)
def test_five_commands_lead_to_a_first_token(tmp_path: Path) -> None:
    typed = commands()
    assert len(typed) == 5
    with running_cluster(tmp_path, model_cache(), Processes(pushed(typed))) as cluster:
        claim: Manifest = {"accessModes": ["ReadWriteMany"]}
        claim |= {"resources": {"requests": {"storage": "1Gi"}}}
        metadata = {"name": CLAIM, "namespace": "default"}
        made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata}
        cluster.call(lambda: cluster.store.create("persistentvolumeclaims", made | {"spec": claim}))
        said = ""
        for words in (words for words in typed if words[0] != "docker"):
            given = words[1:]
            if given[0] == "install":
                given = ["install", given[1], str(CHART), *given[3:], *MY_CLUSTER]
            done = cluster.run(words[0], *given, stdin=json.dumps(VALUES))
            assert done.returncode == 0, done.stderr
            said = done.stdout
        assert re.search(r"^POD LOGS: llm-test-chat.*\n.*\w.*\nttft ", said, re.M), said


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, ["decode and prefill workers", "splitserve scale decode=2 --kubernetes default/demo"]),
        (ROUTE, ["curl https://llm.example.com/v1/models", "describe httproute demo"]),
        (POOL, ["once a vLLM server has joined", "ADDRESS-OF-THE-GATEWAY"]),
    ],
    ids=["defaults", "route", "pool"],
)
def test_what_helm_says_at_its_end_is_what_to_type_next(values: Manifest, words: list[str]) -> None:
    done = helm("install", "demo", "--dry-run=client", "--namespace", "default", values=values)
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    assert all(word in notes for word in words), notes
