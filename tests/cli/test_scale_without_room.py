"""`scale` through the real client where limits, quotas, GPUs and budgets leave no room for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run_cli import cli
from tests.cli.test_scale_on_kubernetes import LOOKER_RULES, RBAC, Release
from tests.mini_cluster.cluster import MiniCluster, mini_cluster

pytest.importorskip("kubernetes", reason="an extra")
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
SCALES = {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]}


class GpuRelease(Release):
    """Both pools ask for a GPU a worker; one node has four."""

    def __init__(self, cluster: MiniCluster, home: Path) -> None:
        super().__init__(cluster, home)
        self._create("nodes", {"metadata": {"name": "one"}, "spec": {}})
        status = {"allocatable": {"nvidia.com/gpu": "4"}}
        cluster.call(lambda: cluster.store.set_status("nodes", "", "one", status))
        for pool in ("prefill", "decode"):
            self._edit(pool, self._ask_for_a_gpu)
        self.settle()

    def quota(self, **hard: str) -> None:
        named = {name.replace("__", "/").replace("_", "."): each for name, each in hard.items()}
        metadata = {"name": "small", "namespace": "default"}
        self._create("resourcequotas", {"metadata": metadata, "spec": {"hard": named}})

    def limits(self, **item: dict[str, str]) -> None:
        """Of each container."""
        metadata = {"name": "narrow", "namespace": "default"}
        spec = {"limits": [{"type": "Container", **item}]}
        self._create("limitranges", {"metadata": metadata, "spec": spec})

    def budget(self, pool: str, min_available: int) -> None:
        metadata = {"name": f"keep-{pool}", "namespace": "default"}
        selector = {"matchLabels": {"splitserve/pool": pool}}
        spec = {"minAvailable": min_available, "selector": selector}
        self._create("poddisruptionbudgets.policy", {"metadata": metadata, "spec": spec})

    def scaler(self) -> str:
        """The token of one who may list and scale pools, and no more."""
        token = self.looker()
        store = self._cluster.store

        def more(draft: dict[str, Any]) -> None:
            draft["rules"] = [*LOOKER_RULES, SCALES]

        edit = (f"roles.{RBAC}", "default", "looker", more)
        self._cluster.call(lambda: store.edit(*edit))
        return token

    def sizes(self) -> tuple[int, int]:
        return self.spec("prefill")["replicas"], self.spec("decode")["replicas"]

    def scale_by_force(self, pool: str, size: int) -> None:
        """As somebody else does."""

        def change(draft: dict[str, Any]) -> None:
            draft["spec"]["replicas"] = size

        self._edit(pool, change)
        self.settle()

    def problem(self, pool: str) -> str:
        """The words of the API server on a pod that it has not let come."""
        store = self._cluster.store
        found = self._cluster.call(lambda: store.get("deployments.apps", "default", f"chat-{pool}"))
        conditions = found["status"]["conditions"]
        return " ".join(each["message"] for each in conditions if each["type"] == "ReplicaFailure")

    def pods(self) -> int:
        return len(self._cluster.call(lambda: self._cluster.store.select("pods", "default")))

    def _edit(self, pool: str, change: Any) -> None:
        store = self._cluster.store
        edit = ("deployments.apps", "default", f"chat-{pool}", change)
        self._cluster.call(lambda: store.edit(*edit))

    @staticmethod
    def _ask_for_a_gpu(draft: dict[str, Any]) -> None:
        (container,) = draft["spec"]["template"]["spec"]["containers"]
        container["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        draft["spec"]["strategy"] = {"type": "Recreate"}


@pytest.fixture
def release(tmp_path: Path) -> Iterator[GpuRelease]:
    with mini_cluster(tmp_path) as cluster:
        yield GpuRelease(cluster, tmp_path)


MORE = pytest.mark.minutes
"""`make test-more` has these: each waits for several commands."""


@pytest.mark.parametrize("words", [("--dry-run",), pytest.param(("--yes",), marks=MORE)])
def test_a_quota_is_a_refusal_with_its_numbers_before_anything_is_patched(
    release: GpuRelease, words: tuple[str, ...]
) -> None:
    release.quota(requests_nvidia_com__gpu="3", pods="10")
    done = release.run("scale", "decode=3", *words)
    assert done.returncode == 4
    assert "refused (quota): quota small: 2 of 3 requests.nvidia.com/gpu are used" in done.stderr
    assert "2 new of decode ask for 2 more: room for 1 worker(s)" in done.stderr
    assert release.sizes() == (1, 1)
    assert release.run("scale", "decode=2", *words).returncode == 0


def test_a_limit_range_is_a_refusal_before_the_server_s_own(release: GpuRelease) -> None:
    release.limits(min={"memory": "1Gi"}, max={"nvidia.com/gpu": "0"})
    done = release.run("scale", "decode=2", "--yes")
    assert done.returncode == 4
    said = "a container of decode may take 1 nvidia.com/gpu, and at most 0 nvidia.com/gpu"
    assert f"refused (limits): limit range narrow: {said}" in done.stderr
    assert release.sizes() == (1, 1)
    release.scale_by_force("decode", 2)
    said = "maximum nvidia.com/gpu usage per Container is 0, but limit is 1"
    assert said in release.problem("decode"), "the server says the same, later"


@MORE
def test_what_a_limit_range_gives_pods_counts_for_a_quota(release: GpuRelease) -> None:
    release.quota(limits_memory="6Gi")
    done = release.run("scale", "decode=2", "--dry-run")
    assert done.returncode == 4
    assert "each container has to say limits.memory, and one of decode does not" in done.stderr
    release.limits(default={"memory": "4Gi"})
    assert release.run("scale", "decode=2", "--dry-run").returncode == 0
    done = release.run("scale", "decode=3", "--dry-run")
    assert "2 new of decode ask for 8 GiB more: room for 1 worker(s)" in done.stderr


@MORE
def test_two_pools_that_fit_alone_are_refused_together(release: GpuRelease) -> None:
    assert release.run("scale", "prefill=2", "decode=2", "--dry-run").returncode == 0
    done = release.run("scale", "prefill=3", "decode=2", "--dry-run")
    assert done.returncode == 4
    assert "of 4 nvidia.com/gpu are free" in done.stderr


def test_gpus_that_no_node_has_are_refused_unless_pods_may_wait(release: GpuRelease) -> None:
    done = release.run("scale", "decode=9", "--dry-run")
    assert done.returncode == 4
    assert "refused (gpus): 8 worker(s) of decode have no node yet" in done.stderr
    assert "2 of 4 nvidia.com/gpu are free, room for 2" in done.stderr
    assert "--allow-pending" in done.stderr
    done = release.run("scale", "decode=9", "--allow-pending", "--yes")
    assert done.returncode == 0, done.stderr
    assert release.sizes() == (1, 9)


def test_a_budget_keeps_workers_that_a_smaller_pool_would_lose(release: GpuRelease) -> None:
    assert release.run("scale", "decode=3", "--yes").returncode == 0
    release.settle()
    release.ready_all()
    release.budget("decode", min_available=2)
    done = release.run("scale", "decode=1", "--dry-run")
    assert done.returncode == 4
    assert "refused (disruption): disruption budget keep-decode keeps 2" in done.stderr
    assert "of 3 now 1 would be left" in done.stderr
    assert release.run("scale", "decode=2", "--yes").returncode == 0


@MORE
def test_who_may_not_look_scales_all_the_same_and_is_told_which_verbs_that_takes(
    release: GpuRelease,
) -> None:
    token = release.scaler()
    release.quota(pods="1")
    done = release.run("scale", "decode=9", "--dry-run", token=token)
    assert done.returncode == 0, done.stderr
    assert "not known: limit ranges: limitranges is forbidden: " in done.stderr
    assert "not known: quotas: resourcequotas is forbidden: " in done.stderr
    assert "cannot list" in done.stderr
    assert "not known: GPUs of nodes: nodes is forbidden" in done.stderr
    told = json.loads(
        release.run("scale", "decode=9", "--dry-run", "-o", "json", token=token).stdout
    )
    assert len(told[0]["unjudged"]) == 3


def test_what_the_server_itself_forbids_later_ends_the_wait_with_its_words(
    release: GpuRelease,
) -> None:
    token = release.scaler()
    release.quota(pods="2")
    assert release.run("scale", "decode=2", "--yes", token=token).returncode == 0
    release.settle()
    assert release.pods() == 2
    words = ("scale", "decode=2", "--yes", "--wait", "--deadline", "5")
    done = release.run(*words, token=token)
    assert done.returncode == 1
    assert "exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2" in done.stderr


def test_pods_that_may_wait_are_of_releases_alone() -> None:
    done = cli("scale", "decode=2", "--allow-pending")
    assert done.returncode == 2 and "--allow-pending" in done.stderr
