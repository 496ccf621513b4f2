"""The chart installs what was declared, on every Kubernetes that it says, and refuses the rest."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml

from cluster.identity import Role
from tests.deploy.cases import CERTIFICATES, MATRIX, VERSIONS, each_of_the_matrix
from tests.deploy.chart import CHART, Manifest, helm, refusal, rendered
from tests.deploy.foreign_schemas import FOREIGN
from tests.deploy.kubernetes_schemas import check


@each_of_the_matrix
def test_helm_finds_nothing_to_complain_of(values: Manifest) -> None:
    done = helm("lint", "--strict", values=values)
    assert done.returncode == 0, done.stdout


@each_of_the_matrix
def test_every_manifest_is_valid_on_every_kubernetes_that_the_chart_is_for(
    values: Manifest,
) -> None:
    manifests = rendered(values).manifests
    for version in VERSIONS:
        for manifest in manifests:
            for part in _of_kubernetes(manifest):
                check(part, version)


def test_what_others_define_has_no_key_that_they_do_not_know() -> None:
    seen = set()
    for values in MATRIX.values():
        for manifest in rendered(values).manifests:
            if (kind := _named(manifest)) in FOREIGN:
                seen.add(kind)
                jsonschema.validate(manifest["spec"], FOREIGN[kind])
    assert seen == FOREIGN.keys(), "each is somewhere in the matrix"


def _named(manifest: Manifest) -> tuple[str, str]:
    return manifest["apiVersion"], manifest["kind"]


def _of_kubernetes(manifest: Manifest) -> list[Manifest]:
    """What of it Kubernetes' own schemas know: of a group its pods."""
    if _named(manifest) not in FOREIGN:
        return [manifest]
    templates = manifest["spec"].get("leaderWorkerTemplate", {})
    kind = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "of-a-group"}}
    return [
        {**kind, "template": templates[name]}
        for name in ("leaderTemplate", "workerTemplate")
        if name in templates
    ]


def test_what_others_define_is_asked_for_only_where_it_was_asked_for() -> None:
    foreign = {"Certificate", "PodMonitor"}
    assert not foreign & {m["kind"] for m in rendered().manifests}
    assert set(rendered(CERTIFICATES).kind("Certificate")) == {"demo-fleet-tls", "demo-tls"}
    assert rendered(None, "--api-versions", "monitoring.coreos.com/v1/PodMonitor").kind(
        "PodMonitor"
    )


def test_the_chart_has_at_most_fifteen_templates_of_at_most_300_lines() -> None:
    files = [path for path in (CHART / "templates").rglob("*") if path.is_file()]
    assert len(files) <= 15
    assert not [path for path in files if len(path.read_text().splitlines()) > 300]


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"modle": {"name": "x"}}, "modle"),
        ({"router": {"options": {"maxQueuedRequest": 5}}}, "maxQueuedRequest"),
        ({"worker": {"options": {"port": 7}}}, "port"),
        ({"pools": {"decode": {"options": {"maxNumSeqs": 0}}}}, "maxNumSeqs"),
        ({"pools": {"decode": {"role": "both"}}}, "role"),
        ({"pools": {"other": {"replicas": 1}}}, "role"),
        ({"router": {"options": {"drainTimeoutS": "90s"}}}, "drainTimeoutS"),
        ({"worker": {"options": {"weights": "int5"}}}, "weights"),
        ({"router": {"replicas": "two"}}, "replicas"),
    ],
)
def test_values_that_are_wrong_are_refused_with_their_key(values: Manifest, key: str) -> None:
    said = refusal(values)
    assert "values don't meet the specifications" in said and key in said


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"pools": {"router": {"role": "decode"}}}, "the router has that name"),
        ({"pools": {"planner": {"role": "decode"}}}, "the planner has that name"),
        ({"pools": {"picker": {"role": "decode"}}}, "the gateway's picker has that name"),
        (
            {"router": {"service": {"externalTrafficPolicy": "Local"}}},
            "router.service.type is ClusterIP",
        ),
        ({"model": {"cache": {"create": True}}}, "name the claim"),
    ],
)
def test_values_that_contradict_each_other_are_refused_in_words(
    values: Manifest, said: str
) -> None:
    assert said in refusal(values)


def test_a_release_whose_name_no_service_may_have_is_told_to_choose_another() -> None:
    assert "give nameOverride one" in helm("template", "1my.rel").stderr
    assert helm("template", "1my.rel", values={"nameOverride": "llm"}).returncode == 0


def test_the_file_of_values_shows_every_key_that_the_schema_knows() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert _keys_of(schema) - {"global"} == _keys_in(values)


def test_roles_of_pools_are_those_of_workers() -> None:
    pools = yaml.safe_load((CHART / "values.yaml").read_text())["pools"]
    assert [pool["role"] for pool in pools.values()] == [
        role.value for role in (Role.PREFILL, Role.DECODE)
    ]


_FREE = frozenset({"options", "pools", "requests", "limits"})
"""Whose keys are not all in the file."""


def _keys_of(schema: dict[str, Any], path: str = "") -> set[str]:
    found: set[str] = set()
    for name, part in schema.get("properties", {}).items():
        here = f"{path}.{name}".removeprefix(".")
        inner = set() if name in _FREE else _keys_of(part, here)
        found |= inner or {here}
    return found


def _keys_in(values: dict[str, Any], path: str = "") -> set[str]:
    found: set[str] = set()
    for name, value in values.items():
        here = f"{path}.{name}".removeprefix(".")
        inner = _keys_in(value, here) if isinstance(value, dict) and name not in _FREE else set()
        found |= inner or {here}
    return found
