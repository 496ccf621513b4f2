"""`scale` and `rollout` through the real client against an API server and its Deployments."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.cli.run_cli import ROOT, TIMEOUT_S, clean_environ, cli
from tests.mini_cluster.cluster import MiniCluster, mini_cluster
from tests.mini_cluster.controllers import ALL, settle

pytest.importorskip("kubernetes", reason="an extra")
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
LOOKER_RULES = [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]}]
_ROUNDS = 3
"""Of pods that get ready, and others that go for them."""
RBAC = "rbac.authorization.k8s.io"


class Release:
    """Two pools of one worker each, whose controllers work when they are told to."""

    def __init__(self, cluster: MiniCluster, home: Path) -> None:
        self._cluster = cluster
        self._home = home
        self.ended: int | None = None
        for pool in ("prefill", "decode"):
            self._create("deployments.apps", deployment(pool))
        self.settle()

    def environ(self, token: str = "") -> dict[str, str]:
        config = self._cluster.server.kubeconfig(token)
        return clean_environ(KUBECONFIG=str(config), HOME=str(self._home))

    def run(self, *words: str, token: str = "", text: str = "") -> CompletedProcess[str]:
        environ = self.environ(token)
        return cli(*words, "--kubernetes", "default/chat", environ=environ, text=text)

    @contextmanager
    def watching(self, *words: str) -> Iterator[Iterator[str]]:
        """Its lines as they come; `ended` has its exit code afterwards."""
        command = [sys.executable, "-m", "cli", *words, "--kubernetes", "default/chat"]
        process = subprocess.Popen(
            command, cwd=ROOT, env=self.environ(), stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        try:
            with process.stdout:
                yield process.stdout
            self.ended = process.wait(TIMEOUT_S)
        finally:
            process.kill()
            process.wait()

    def ready_all(self) -> None:
        """Every pod that is there, on a node; those that leave have gone."""
        since = {"lastTransitionTime": "2026-11-23T12:00:00Z"}
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", **since}]}
        store = self._cluster.store

        def all_of_them() -> None:
            if not store.select("nodes"):
                store.create("nodes", {"metadata": {"name": "any"}})
            for pod in store.select("pods", "default"):
                name = pod["metadata"]["name"]
                if "deletionTimestamp" in pod["metadata"]:
                    store.delete("pods", "default", name, grace_s=0)
                else:
                    store.set_status("pods", "default", name, ready)

        for _ in range(_ROUNDS):
            self._cluster.call(all_of_them)
            self.settle()

    def settle(self) -> None:
        store = self._cluster.store
        self._cluster.call(lambda: settle(store, ALL, NOON))

    def spec(self, pool: str) -> Any:
        store = self._cluster.store
        return self._cluster.call(
            lambda: store.get("deployments.apps", "default", f"chat-{pool}")["spec"]
        )

    def looker(self) -> str:
        """The token of one who may list the pools, and no more."""
        metadata = {"name": "looker", "namespace": "default"}
        subject = {"kind": "ServiceAccount", **metadata}
        role = {"apiGroup": RBAC, "kind": "Role", "name": "looker"}
        self._create("serviceaccounts", {"metadata": metadata})
        self._create(f"roles.{RBAC}", {"metadata": metadata, "rules": LOOKER_RULES})
        self._create(
            f"rolebindings.{RBAC}", {"metadata": metadata, "subjects": [subject], "roleRef": role}
        )
        access = self._cluster.server.api.access
        return self._cluster.call(lambda: access.token_of("default", "looker"))

    def change_image(self, pool: str, image: str) -> None:
        change = [
            {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image}
        ]
        with self._cluster.client() as client:
            path = f"/apis/apps/v1/namespaces/default/deployments/chat-{pool}"
            kind = {"Content-Type": "application/json-patch+json"}
            client.patch(path, json=change, headers=kind).raise_for_status()
        self.settle()

    def _create(self, resource: str, new: dict[str, Any]) -> None:
        self._cluster.call(lambda: self._cluster.store.create(resource, new))


def deployment(pool: str) -> dict[str, Any]:
    """As the chart labels it."""
    labels = {
        "app.kubernetes.io/name": "splitserve",
        "app.kubernetes.io/instance": "chat",
        "splitserve/pool": pool,
    }
    container = {"name": "worker", "image": "worker:1"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"chat-{pool}", "namespace": "default", "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Release]:
    with mini_cluster(tmp_path) as cluster:
        yield Release(cluster, tmp_path)


def test_a_pool_is_scaled_and_a_dry_run_or_a_refusal_leaves_it(release: Release) -> None:
    assert release.run("scale", "prefill=3", "--dry-run").returncode == 0
    assert release.run("scale", "decode=0", "--yes").returncode == 4
    assert release.spec("prefill")["replicas"] == release.spec("decode")["replicas"] == 1
    done = release.run("scale", "prefill=3", "--yes")
    assert done.returncode == 0, done.stderr
    assert release.spec("prefill")["replicas"] == 3
    fewer = release.run("scale", "prefill=1", "--dry-run")
    assert "2 of prefill leave, and Kubernetes chooses which" in fewer.stderr
    assert "cached tokens are handed on" in fewer.stderr


def test_who_may_only_look_is_told_the_verb_that_is_missing(release: Release) -> None:
    refused = release.run("scale", "prefill=3", "--yes", token=release.looker())
    assert refused.returncode == 4
    assert "forbidden" in refused.stderr and "patch" in refused.stderr
    assert "deployments/scale" in refused.stderr
    assert release.spec("prefill")["replicas"] == 1


def test_a_rollout_is_held_goes_on_and_is_undone(release: Release) -> None:
    assert "no revision before" in release.run("rollout", "undo", "prefill", "--yes").stderr
    assert release.run("rollout", "pause", "prefill", "--yes").returncode == 0
    assert release.spec("prefill")["paused"] is True
    assert release.run("rollout", "resume", "--yes").returncode == 0
    assert not release.spec("prefill").get("paused", False)
    release.change_image("prefill", "worker:2")
    assert "rolling" in release.run("rollout", "status", "prefill").stdout
    done = release.run("rollout", "undo", "prefill", "--yes")
    assert done.returncode == 0
    assert "prefill: containers.worker.image: worker:2 -> worker:1" in done.stderr
    (container,) = release.spec("prefill")["template"]["spec"]["containers"]
    assert container["image"] == "worker:1"


def test_a_dry_run_or_a_no_leaves_a_rollout_as_it_is_and_a_verb_that_is_missing_is_named(
    release: Release,
) -> None:
    done = release.run("rollout", "pause", "prefill", "--dry-run", "-o", "json")
    assert done.returncode == 0
    (change,) = json.loads(done.stdout)
    assert (change["pool"], change["deed"], change["is_paused"]) == ("prefill", "pause", False)
    assert release.run("rollout", "pause", "prefill", text="n\n").returncode == 1
    assert not release.spec("prefill").get("paused", False)
    token = release.looker()
    for words in (("--dry-run",), ("--yes",)):
        refused = release.run("rollout", "pause", "prefill", *words, token=token)
        assert refused.returncode == 4 and "cannot patch" in refused.stderr


def test_a_rollout_is_watched_until_it_is_done(release: Release) -> None:
    release.change_image("prefill", "worker:2")
    with release.watching("rollout", "status", "prefill", "--watch", "--interval", "0.1") as words:
        assert any("rolling" in line for line in words)
        release.ready_all()
        rest = list(words)
    assert any("done" in line for line in rest)
    assert release.ended == 0
