"""The chart as real helm renders it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).parents[2] / "deploy/helm/splitserve"
_HELM = "SPLITSERVE_HELM"
"""Where `make test` has put it."""

Manifest = dict[str, Any]


def helm(*words: str, values: Manifest | None = None) -> subprocess.CompletedProcess[str]:
    """One command on the chart. Skips the test where nobody has helm."""
    program = shutil.which(os.environ.get(_HELM) or "helm") or shutil.which("helm")
    if program is None:
        pytest.skip("helm is not here; `make test` fetches it")
    command = [program, *words, str(CHART), "--values", "-"]  # words: the verb, and names
    return subprocess.run(
        command, input=json.dumps(values or {}), capture_output=True, text=True, check=False
    )


@dataclass(frozen=True)
class Rendered:
    """All manifests of one release, called `demo`."""

    manifests: list[Manifest]

    def kind(self, kind: str) -> dict[str, Manifest]:
        """By name."""
        return {m["metadata"]["name"]: m for m in self.manifests if m["kind"] == kind}

    @cached_property
    def pods(self) -> dict[str, Manifest]:
        """What deployments, groups and jobs start, and pods of their own, by name: a group's leader
        by the group's name, its followers by the name of the first."""
        owners = self.kind("Deployment") | self.kind("Job")
        found = {name: m["spec"]["template"] for name, m in owners.items()} | self.kind("Pod")
        for name, group in self.kind("LeaderWorkerSet").items():
            templates = group["spec"]["leaderWorkerTemplate"]
            found |= {name: templates["leaderTemplate"], f"{name}-1": templates["workerTemplate"]}
        return found

    def environ(self, deployment: str) -> dict[str, str]:
        """Of its container: what is said in words."""
        return {item["name"]: item["value"] for item in self.env(deployment) if "value" in item}

    def env(self, deployment: str) -> list[Manifest]:
        """All of it."""
        (container,) = self.pods[deployment]["spec"]["containers"]
        return list(container["env"])


def rendered(values: Manifest | None = None, *words: str) -> Rendered:
    """Fails the test with what helm says. The same values are rendered once."""
    return Rendered(deepcopy(_manifests(words, json.dumps(values or {}))))


@cache
def _manifests(words: tuple[str, ...], values: str) -> list[Manifest]:
    done = helm("template", "demo", *words, values=json.loads(values))
    assert done.returncode == 0, done.stderr
    return [m for m in yaml.safe_load_all(done.stdout) if m]


def mounted(release: Rendered, pod: str) -> dict[str, Manifest | None]:
    """By the path in its container: the claim that lies there; None: something else does."""
    spec = release.pods[pod]["spec"]
    (container,) = spec["containers"]
    claims = {each["name"]: each.get("persistentVolumeClaim") for each in spec["volumes"]}
    return {each["mountPath"]: claims[each["name"]] for each in container["volumeMounts"]}


def refusal(values: Manifest) -> str:
    """What helm says of values that it refuses."""
    done = helm("template", "demo", values=values)
    assert done.returncode != 0
    return done.stderr
