"""What pods may fill: the cache, and memory that is shared."""

from __future__ import annotations

import pytest

from tests.deploy.chart import Manifest, refusal, rendered
from tests.deploy.matrix import AXES

_HUB = "hf://someone/model@main"
_LIMIT = "SPLITSERVE_HOME_LIMIT_BYTES"


def cached(**cache: object) -> Manifest:
    return {"model": {"name": _HUB, "cache": cache}}


@pytest.mark.parametrize(
    ("size", "num_bytes"),
    [
        ("20Gi", 20 << 30),
        ("500G", 500 * 10**9),
        ("1.5Ti", 3 << 39),
        (4096, 4096),
        ("512Mi", 1 << 29),
    ],
)
def test_a_process_is_told_how_much_its_volume_may_hold(size: object, num_bytes: int) -> None:
    release = rendered(cached(size=size))
    for name in ("demo-router", "demo-decode"):
        assert release.environ(name)[_LIMIT] == str(num_bytes)


def test_hosts_of_a_group_are_told_too() -> None:
    release = rendered({**AXES["ranks"]["group"]})
    assert release.environ("demo-decode-1")[_LIMIT] == str(20 << 30)


@pytest.mark.parametrize("cache", [{"claim": "models"}, {"claim": "models", "readOnly": True}])
def test_a_claim_has_its_own_size(cache: Manifest) -> None:
    release = rendered(cached(**cache))
    assert _LIMIT not in release.environ("demo-decode")
    assert not {"ephemeral-storage"} & requests(cached(**cache)).keys()


def requests(values: Manifest) -> Manifest:
    (container,) = rendered(values).pods["demo-decode"]["spec"]["containers"]
    found: Manifest = container["resources"]["requests"]
    return found


def test_a_worker_that_fetches_from_a_hub_asks_its_node_for_the_room() -> None:
    assert requests(cached(size="200Gi"))["ephemeral-storage"] == "200Gi"
    assert "ephemeral-storage" not in requests({})
    own: Manifest = {"resources": {"requests": {"ephemeral-storage": "70Gi"}}}
    assert requests({**cached(), "worker": own})["ephemeral-storage"] == "70Gi"


def test_shared_memory_that_leaves_none_for_the_process_is_refused() -> None:
    limits: Manifest = {"resources": {"limits": {"memory": "16Gi"}}}
    said = refusal({"pools": {"decode": {"shm": "16Gi", **limits}}})
    assert "pools.decode.shm" in said and "of which it may have 16Gi" in said
    assert ".shm: what lies in /dev/shm" in refusal({"worker": {"shm": "20G"}})
    rendered({"worker": {"shm": "16Gi", "resources": {"limits": {"memory": "64Gi"}}}})
    rendered({"worker": {"shm": "16Gi", "resources": {"limits": {"memory": None}}}})


def test_a_size_of_no_kind_is_refused() -> None:
    assert "is no size" in refusal({"model": {"cache": {"size": "20GB"}}})
