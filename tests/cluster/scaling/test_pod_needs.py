"""What a pod asks for, as the scheduler and quotas count it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from cluster.scaling.pod_needs import pod_needs


def container(cpu: str = "", gpus: int = 0, **more: Any) -> dict[str, Any]:
    requests = {"cpu": cpu} if cpu else {}
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {"resources": {"requests": requests, "limits": limits}, **more}


def test_containers_are_added_up_and_a_limit_alone_is_a_request() -> None:
    needs = pod_needs({"containers": [container("1", gpus=2), container("500m")]})
    assert needs.requests == {"cpu": Fraction(3, 2), "nvidia.com/gpu": Fraction(2)}
    assert needs.limits == {"nvidia.com/gpu": Fraction(2)}
    assert needs.devices == {"nvidia.com/gpu": 2}


def test_what_runs_before_counts_where_it_is_more_and_side_cars_always() -> None:
    before = [container("4"), container("1", restartPolicy="Always"), container("2")]
    needs = pod_needs({"initContainers": before, "containers": [container("2")]})
    assert needs.requests["cpu"] == 4
    needs = pod_needs({"initContainers": before, "containers": [container("5")]})
    assert needs.requests["cpu"] == 6


def test_what_a_runtime_takes_for_itself_is_added() -> None:
    pod = {"containers": [container("1")], "overhead": {"cpu": "250m", "memory": "64Mi"}}
    assert pod_needs(pod).requests == {"cpu": Fraction(5, 4), "memory": Fraction(64 * 2**20)}


def test_a_quota_has_names_of_its_own_for_all_of_it() -> None:
    of_quota = pod_needs({"containers": [container("1", gpus=2)]}).of_quota()
    assert of_quota == {
        "pods": 1,
        "count/pods": 1,
        "cpu": 1,
        "requests.cpu": 1,
        "requests.nvidia.com/gpu": 2,
        "limits.nvidia.com/gpu": 2,
    }


def test_cores_memory_and_pages_are_no_devices() -> None:
    limits = {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "1Gi", "rdma/ib": "1"}
    needs = pod_needs({"containers": [{"resources": {"limits": limits}}]})
    assert needs.devices == {"rdma/ib": 1}
