"""Pools of the chart: their options, devices, updates and ends."""

from __future__ import annotations

import pytest

from cluster.config import WorkerOptions
from cluster.options import load_options
from tests.deploy.cases import ADAPTERS, GPUS, KEDA
from tests.deploy.chart import Manifest, mounted, refusal, rendered


def test_ranks_without_gpus_are_refused_by_the_key_that_asks_for_them() -> None:
    decode = {"gpus": {"count": 4}, "options": {"tensorParallelSize": 8}}
    told = refusal({"pools": {"decode": decode}})
    assert "pools.decode.options.tensorParallelSize" in told and "more hosts" in told
    idle: Manifest = {"gpus": {"count": 4}, "options": {"tensorParallelSize": 2}}
    for pool, ranks in ((idle, "is 2"), ({"gpus": {"count": 4}}, "is not given (1)")):
        told = refusal({"pools": {"decode": pool}})
        assert "pools.decode.gpus.count: a worker asks for 4 GPUs" in told
        assert f"options.tensorParallelSize {ranks}" in told and "make it 4" in told
    on_cpus = {"worker": {"options": {"tensorParallelSize": 2}}}
    assert rendered(on_cpus).environ("demo-decode")["SPLITSERVE_TENSOR_PARALLEL_SIZE"] == "2"


def test_options_become_variables_and_a_pool_s_own_win_over_all_pools_and_numbers_stay() -> None:
    release = rendered(
        {
            "worker": {"options": {"maxNumSeqs": 32, "kvMemoryBytes": 8_589_934_592}},
            "pools": {"decode": {"options": {"maxNumSeqs": 48, "memoryShare": 0.5}}},
            "model": {"options": {"weights": "fp8"}},
        }
    )
    options = load_options(WorkerOptions, environ=release.environ("demo-decode"))
    assert options.engine.max_num_seqs == 48 and options.engine.memory_share == 0.5
    assert options.engine.kv_memory_bytes == 8_589_934_592 and options.model.weights == "fp8"
    options = load_options(WorkerOptions, environ=release.environ("demo-prefill"))
    assert options.engine.max_num_seqs == 32 and options.engine.memory_share == 1.0


def test_a_pool_of_which_prometheus_knows_nothing_is_not_taken_for_one_that_is_idle() -> None:
    found = rendered({**KEDA, "pools": {"decode": {"replicas": 3}}}).kind("ScaledObject")
    for name, least in (("demo-decode", 3), ("demo-prefill", 1)):
        (trigger,) = found[name]["spec"]["triggers"]
        assert trigger["metadata"]["ignoreNullValues"] == "false"
        fallback = found[name]["spec"]["fallback"]
        assert (fallback["behavior"], fallback["replicas"]) == ("currentReplicasIfHigher", least)


def test_the_pool_that_has_adapters_reads_them_from_its_claim_and_no_other_pod_does() -> None:
    release = rendered(ADAPTERS)
    engine = load_options(WorkerOptions, environ=release.environ("demo-decode-adapters")).engine
    assert (engine.adapters, engine.adapter_ranks) == ("/adapters", 128)
    assert mounted(release, "demo-decode-adapters")["/adapters"] == {
        "claimName": "adapters",
        "readOnly": True,
    }
    for name in ("demo-decode", "demo-prefill", "demo-router"):
        assert "SPLITSERVE_ADAPTERS" not in release.environ(name)
        assert "/adapters" not in mounted(release, name)


def test_adapters_of_all_pools_are_those_of_each_and_numbers_out_of_bounds_are_refused() -> None:
    has = {key: value for key, value in ADAPTERS["pools"]["decode-adapters"].items()}
    release = rendered({"worker": {key: has[key] for key in has if key != "role"}})
    for name in ("demo-decode", "demo-prefill"):
        environ = release.environ(name)
        assert environ["SPLITSERVE_ADAPTERS"] == "/adapters" in mounted(release, name)
    for wrong in ({"adapterRanks": 0}, {"adapterRanks": 8193}, {"adapters": 5}):
        told = refusal({"pools": {"decode": {"options": wrong}}})
        assert next(iter(wrong)) in told


@pytest.mark.parametrize(
    ("options", "least_s"),
    [
        ({"handOnS": 300}, 300),
        ({"handOnS": 40.5, "drainTimeoutS": 10}, 41),
        ({"handOnS": 5, "drainTimeoutS": 90.5}, 91),
        ({"drainTimeoutS": 5}, 20),
        ({}, 30),
    ],
)
def test_a_worker_is_not_killed_while_it_drains_or_hands_its_cache_on(
    options: dict[str, float], least_s: int
) -> None:
    ranks = {"hosts": 2, "options": {**options, "tensorParallelSize": 2}}
    pods = rendered({"pools": {"decode": ranks, "prefill": {"options": options}}}).pods
    graces = {name: pod["spec"].get("terminationGracePeriodSeconds") for name, pod in pods.items()}
    assert graces["demo-prefill"] == graces["demo-decode"] == least_s + 30
    assert graces["demo-decode-1"] == least_s + 45, "a follower outlasts its leader"


def test_a_pool_for_each_type_of_gpu_takes_its_devices_and_drains_as_long_as_it_may() -> None:
    release = rendered(GPUS)
    assert set(release.kind("Deployment")) == {
        *("demo-router", "demo-prefill", "demo-decode", "demo-decode-h100")
    }
    pod = release.pods["demo-decode-h100"]
    (container,) = pod["spec"]["containers"]
    limits = container["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == 4 and limits["rdma/ib"] == 1 and limits["memory"] == "16Gi"
    assert container["image"].endswith("-cuda") and container["args"] == ["decode-worker"]
    assert pod["metadata"]["labels"]["team"] == "a"
    assert release.pods["demo-router"]["spec"]["terminationGracePeriodSeconds"] == 91 + 35
    assert rendered().pods["demo-decode"]["spec"]["containers"][0]["image"].endswith("-cpu")


def test_a_pool_tolerates_the_taint_that_nodes_with_its_gpus_usually_have() -> None:
    taint = {"key": "nvidia.com/gpu", "operator": "Exists"}
    other = {"key": "spot", "operator": "Exists"}
    values: Manifest = {"gpus": {"count": 1}, "tolerations": [other, taint]}
    amd: Manifest = {"gpus": {"count": 1, "resource": "amd.com/gpu"}}
    pods = rendered({"pools": {"decode": values, "prefill": amd}}).pods
    assert pods["demo-decode"]["spec"]["tolerations"] == [other, taint]
    assert pods["demo-prefill"]["spec"]["tolerations"] == [taint | {"key": "amd.com/gpu"}]
    assert "tolerations" not in rendered().pods["demo-decode"]["spec"]


@pytest.mark.parametrize(
    ("pool", "surge"),
    [
        ({}, 1),
        ({"gpus": {"count": 1}}, 0),
        ({"gpus": {"count": 1}, "surge": 2}, 2),
        ({"surge": 0}, 0),
    ],
)
def test_a_pool_is_updated_with_as_many_workers_more_as_it_may_have(
    pool: Manifest, surge: int
) -> None:
    update = {"maxUnavailable": 0 if surge else 1, "maxSurge": surge}
    group = {"hosts": 2, "options": {"tensorParallelSize": 2}}
    release = rendered({"pools": {"decode": pool, "prefill": pool | group}})
    deployment = release.kind("Deployment")["demo-decode"]["spec"]
    assert deployment["strategy"]["rollingUpdate"] == update
    rollout = release.kind("LeaderWorkerSet")["demo-prefill"]["spec"]["rolloutStrategy"]
    assert rollout["rollingUpdateConfiguration"] == update


def threads_of(pool: Manifest, pod: str = "demo-decode") -> int | None:
    """That a worker takes from its variables; None: all cores that it sees."""
    environ = rendered({"pools": {"decode": pool}}).environ(pod)
    options = load_options(WorkerOptions, environ={"SPLITSERVE_ADVERTISE_HOST": "x"} | environ)
    return options.engine.num_threads


@pytest.mark.parametrize(
    ("requests", "num_threads"),
    [
        ({}, 2),
        ({"cpu": 6}, 6),
        ({"cpu": "250m"}, 1),
        ({"cpu": "3500m"}, 4),
        ({"cpu": 1.5}, 2),
        ({"cpu": "12"}, 12),
        ({"cpu": None}, None),
    ],
)
def test_a_worker_has_as_many_threads_as_it_asks_for_cores_not_as_its_node_has(
    requests: Manifest, num_threads: int | None
) -> None:
    assert threads_of({"resources": {"requests": requests}}) == num_threads
    gpus: Manifest = {"gpus": {"count": 1}, "resources": {"requests": requests}}
    assert threads_of(gpus) == num_threads, "by which it loads"


def test_who_says_how_many_threads_a_worker_has_is_believed() -> None:
    requests: Manifest = {"requests": {"cpu": "8"}}
    assert threads_of({"resources": requests, "options": {"numThreads": 3}}) == 3
    assert threads_of({"resources": {**requests, "limits": {"cpu": "4"}}}) is None, "the quota does"
    own: Manifest = {"name": "SPLITSERVE_NUM_THREADS", "value": "5"}
    pool: Manifest = {"resources": requests, "env": [own]}
    assert threads_of(pool) == 5
    env = rendered({"pools": {"decode": pool}}).env("demo-decode")
    names = [item["name"] for item in env]
    assert len(names) == len(set(names)), "a list with one twice is refused"


@pytest.mark.parametrize(
    ("resource", "taints"),
    [
        ("nvidia.com/gpu", ["nvidia.com/gpu"]),
        ("nvidia.com/mig-1g.10gb", ["nvidia.com/mig-1g.10gb", "nvidia.com/gpu"]),
        ("nvidia.com/gpu.shared", ["nvidia.com/gpu.shared", "nvidia.com/gpu"]),
        ("amd.com/gpu", ["amd.com/gpu"]),
    ],
)
def test_parts_of_a_gpu_are_on_nodes_that_are_tainted_by_the_name_of_the_whole(
    resource: str, taints: list[str]
) -> None:
    own: Manifest = {"key": "nvidia.com/gpu", "operator": "Exists"}
    for given in ([], [own]):
        values: Manifest = {"gpus": {"count": 1, "resource": resource}, "tolerations": given}
        pod = rendered({"pools": {"decode": values}}).pods["demo-decode"]
        found = [each["key"] for each in pod["spec"]["tolerations"]]
        assert sorted(set(found)) == sorted({*taints, *(each["key"] for each in given)})
        assert len(found) == len(set(found))
