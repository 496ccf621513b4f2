"""Of the rights that the chart gives its planner each is needed: with all of them it looks at
everything and finds no fault; without one, what it does is refused or not known, and the words name
the verb."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run_cli import clean_environ, cli
from tests.deploy.chart import Manifest, rendered
from tests.mini_cluster.cluster import MiniCluster, mini_cluster

pytest.importorskip("kubernetes", reason="an extra")
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
RBAC = "rbac.authorization.k8s.io"
VALUES: Manifest = {
    "planner": {
        "enabled": True,
        "seesNodes": True,
        "maxReplicas": {"prefill": 8, "decode": 8},
    },
    "worker": {"gpus": {"count": 1}},
}
PLACES = {
    "ServiceAccount": "serviceaccounts",
    "Deployment": "deployments.apps",
    "Role": f"roles.{RBAC}",
    "RoleBinding": f"rolebindings.{RBAC}",
    "ClusterRole": f"clusterroles.{RBAC}",
    "ClusterRoleBinding": f"clusterrolebindings.{RBAC}",
}
OF_THE_CLUSTER = ("ClusterRole", "ClusterRoleBinding")
GROWS, SHRINKS = "decode=3", "decode=1"
RIGHTS = [
    ("deployments", "list", GROWS, 4),
    ("limitranges", "list", GROWS, 0),
    ("resourcequotas", "list", GROWS, 0),
    ("poddisruptionbudgets", "list", SHRINKS, 0),
    ("deployments/scale", "patch", GROWS, 4),
    ("nodes", "list", GROWS, 0),
    ("pods", "list", GROWS, 0),
]
"""What is done without it, and how that ends: what may not be looked at refuses nothing."""
HERE = [RIGHTS[0], RIGHTS[2]]
"""One that refuses and one that does not; `make test-more` has the others."""


class Planner:
    """Whoever has the token of its service account."""

    def __init__(self, cluster: MiniCluster) -> None:
        self._store = cluster.store
        self._call = cluster.call
        for manifest in rendered(VALUES).manifests:
            if manifest["kind"] in PLACES:
                self._create(deepcopy(manifest))
        self.node("one", {"nvidia.com/gpu": "4", "pods": "110"})
        token = self._call(lambda: cluster.server.api.access.token_of("default", "demo-planner"))
        self._environ = clean_environ(KUBECONFIG=str(cluster.server.kubeconfig(token)))

    def _create(self, manifest: Manifest) -> None:
        if manifest["kind"] not in OF_THE_CLUSTER:
            manifest["metadata"]["namespace"] = "default"
        if manifest["kind"] == "Deployment":
            manifest["spec"]["replicas"] = 2
            for container in manifest["spec"]["template"]["spec"]["containers"]:
                for amounts in container["resources"].values():  # as a server keeps them
                    amounts.update({name: str(amount) for name, amount in amounts.items()})
        self._call(lambda: self._store.create(PLACES[manifest["kind"]], manifest))

    def node(self, name: str, allocatable: dict[str, str], **spec: Any) -> None:
        labels = {"kubernetes.io/arch": "amd64"}
        new = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        self._call(lambda: self._store.create("nodes", new))
        self._call(lambda: self._store.set_status("nodes", "", name, {"allocatable": allocatable}))

    def scale(self, order: str) -> subprocess.CompletedProcess[str]:
        """What it would come to."""
        words = ("scale", order, "--dry-run", "--kubernetes", "default/demo")
        return cli(*words, environ=self._environ)

    def lose(self, resource: str) -> None:
        """Its only verb on that."""

        def without(draft: dict[str, Any]) -> None:
            for rule in draft["rules"]:
                rule["resources"] = [each for each in rule["resources"] if each != resource]

        roles = (("Role", "default", "demo-planner"), ("ClusterRole", "", "default-demo-planner"))
        for kind, namespace, name in roles:
            edit = (PLACES[kind], namespace, name, without)
            self._call(lambda edit=edit: self._store.edit(*edit))


@pytest.fixture
def planner(tmp_path: Path) -> Iterator[Planner]:
    with mini_cluster(tmp_path) as cluster:
        yield Planner(cluster)


def test_every_right_that_the_chart_gives_is_tried() -> None:
    release = rendered(VALUES)
    roles = (release.kind("Role")["demo-planner"], *release.kind("ClusterRole").values())
    given = [
        (resource, verb)
        for role in roles
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    assert sorted(given) == sorted((resource, verb) for resource, verb, _, _ in RIGHTS)


def test_with_all_of_them_nothing_is_unknown_or_refused(planner: Planner) -> None:
    for order in (GROWS, SHRINKS):
        done = planner.scale(order)
        assert done.returncode == 0, done.stderr
        assert "cannot" not in done.stderr


@pytest.mark.parametrize(
    ("resource", "verb", "order", "code"),
    [
        pytest.param(*each, id=each[0], marks=() if each in HERE else pytest.mark.minutes)
        for each in RIGHTS
    ],
)
def test_without_one_the_words_name_the_verb_that_is_missing(
    planner: Planner, resource: str, verb: str, order: str, code: int
) -> None:
    planner.lose(resource)
    done = planner.scale(order)
    assert done.returncode == code, done.stdout + done.stderr
    (line,) = [line for line in done.stderr.splitlines() if f"cannot {verb} resource" in line]
    assert f'"{resource}"' in line
    assert ("not known: " if code == 0 else "refused (forbidden)") in line


def test_nodes_that_are_full_or_cordoned_are_seen_before_a_pool_grows(planner: Planner) -> None:
    planner.node("two", {"nvidia.com/gpu": "8"}, unschedulable=True)
    planner.node("three", {"nvidia.com/gpu": "8", "pods": "0"})
    assert planner.scale("decode=4").returncode == 0
    done = planner.scale("decode=6")
    assert done.returncode == 4
    assert "refused (gpus): 6 worker(s) of decode have no node yet" in done.stderr
    assert "(another 1 cordoned) 12 of 12 nvidia.com/gpu" in done.stderr
    assert "room for 4" in done.stderr
