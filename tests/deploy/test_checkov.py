"""checkov finds nothing in the chart's manifests but what is named here, and in docs/kubernetes.md
with its reason. `make test-cluster` installs it, in an environment of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deploy.cases import MATRIX
from tests.deploy.chart import Manifest, helm

pytestmark = [pytest.mark.minutes, pytest.mark.timeout(600)]
PAGE = Path(__file__).parents[2] / "docs/kubernetes.md"
_CHECKOV = "SPLITSERVE_CHECKOV"
_POLICIES_OFF: Manifest = {"networkPolicy": {"enabled": False}}
_LOCKS: Manifest = {"worker": {"rdma": {"resource": "rdma/ib", "ipcLock": True}}}
CASES = {**MATRIX, "no policies": _POLICIES_OFF, "locked memory": _LOCKS}


@dataclass(frozen=True, slots=True)
class Found:
    """A check that failed, of one manifest such as `Deployment.default.demo-router`."""

    check: str
    resource: str


Excepts = Callable[[Found, Manifest], bool]
EXCEPTIONS: dict[str, Excepts] = {
    "CKV_K8S_21": lambda found, values: True,
    "CKV_K8S_11": lambda found, values: True,
    "CKV_K8S_43": lambda found, values: True,
    "CKV_K8S_15": lambda found, values: True,
    "CKV_K8S_35": lambda found, values: True,
    "CKV_K8S_8": lambda found, values: "demo-test-" in found.resource,
    "CKV_K8S_9": lambda found, values: "demo-test-" in found.resource,
    "CKV_K8S_25": lambda found, values: values is _LOCKS,
    "CKV2_K8S_6": lambda found, values: not values.get("networkPolicy", {}).get("enabled", True),
}
"""By check: of which manifests of which values it may fail."""


def checkov(folder: Path, values: Manifest) -> list[Found]:
    """What it finds in a release of these values, called `demo`."""
    program = os.environ.get(_CHECKOV) or shutil.which("checkov")
    if program is None:
        pytest.skip("checkov is not here; `make test-cluster` installs it")
    done = helm("template", "demo", values=values)
    assert done.returncode == 0, done.stderr
    (folder / "all.yaml").write_text(done.stdout)
    words = ("--framework", "kubernetes", "--output", "json", "--quiet", "--compact")
    words += ("--skip-download",)  # of texts about checks, from its maker
    ran = subprocess.run(
        [program, "--file", "all.yaml", *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(ran.stdout)
    assert report["summary"]["passed"] > 100 and not report["summary"]["parsing_errors"]
    return [
        Found(each["check_id"], each["resource"]) for each in report["results"]["failed_checks"]
    ]


@pytest.mark.parametrize("values", CASES.values(), ids=CASES.keys())
def test_checkov_finds_nothing_but_what_is_named(values: Manifest, tmp_path: Path) -> None:
    found = checkov(tmp_path, values)
    others = [
        each
        for each in found
        if each.check not in EXCEPTIONS or not EXCEPTIONS[each.check](each, values)
    ]
    assert others == []


def test_each_exception_is_still_one(tmp_path: Path) -> None:
    found = {
        each.check for values in ({}, _POLICIES_OFF, _LOCKS) for each in checkov(tmp_path, values)
    }
    assert found == set(EXCEPTIONS)


def test_the_page_says_why_of_each_exception() -> None:
    told = PAGE.read_text().partition("## What checkov says of it")[2].partition("\n## ")[0]
    rows = [line for line in told.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"CKV2?_K8S_\d+", row)} == set(EXCEPTIONS)
