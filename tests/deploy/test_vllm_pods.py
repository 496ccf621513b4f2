"""What the chart lets a router do is what it needs to find vLLM's pods, and no less."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.deploy.chart import Manifest, rendered
from tests.router.front_fakes import until
from tests.router.vllm.pods.pod_cluster import PodCluster, pod_cluster, telling

VALUES: Manifest = {"router": {"vllmPods": {"selector": "app=vllm"}}}


def install(cluster: PodCluster, without: str = "") -> None:
    """The chart's own account, role and binding, less one verb."""
    release = rendered(VALUES)
    account = release.kind("ServiceAccount")["demo-router"]
    (role,), (binding,) = (release.kind(kind).values() for kind in ("Role", "RoleBinding"))
    (rule,) = role["rules"]
    verbs = [verb for verb in rule["verbs"] if verb != without]
    cluster.install(account, role | {"rules": [rule | {"verbs": verbs}]}, binding)


async def test_the_charts_role_is_enough_to_follow_pods(tmp_path: Path) -> None:
    async with pod_cluster(tmp_path) as cluster:
        install(cluster)
        cluster.add("a", "10.0.0.1")
        async with telling(cluster) as told:
            await told.see("10.0.0.1")
            cluster.delete("a", grace_s=0)
            await told.see()


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_each_verb_of_it_is_needed_and_is_named_where_it_is_missing(
    tmp_path: Path, verb: str
) -> None:
    async with pod_cluster(tmp_path) as cluster:
        install(cluster, without=verb)
        with capture_logs() as lines:
            async with telling(cluster) as told:
                await until(lambda: bool(lines), "it is said")
                await told.tries(1)
                assert not told.discovery.is_current
        reasons = " ".join(line.get("reason", "") for line in lines)
        assert f"may not {verb} pods in the namespace default" in reasons
