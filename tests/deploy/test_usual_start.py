"""Who sizes pools knows how long a worker with GPUs takes to come."""

from __future__ import annotations

from tests.deploy.chart import Manifest, rendered

_NOTICE, _PATIENCE = "SPLITSERVE_SCALE_NOTICE_S", "SPLITSERVE_START_PATIENCE_S"
_ON_GPUS: Manifest = {"gpus": {"count": 1}}
_PLANNER: Manifest = {"enabled": True, "maxReplicas": {"prefill": 8, "decode": 8}}


def told(values: Manifest) -> tuple[str | None, str | None]:
    """The routers' notice and the planner's patience."""
    release = rendered(values)
    patience = release.environ("demo-planner").get(_PATIENCE) if "planner" in values else None
    return release.environ("demo-router").get(_NOTICE), patience


def test_workers_without_gpus_and_pools_that_nobody_sizes_have_the_defaults() -> None:
    assert told({"planner": _PLANNER}) == (None, None)
    assert told({"worker": _ON_GPUS}) == (None, None)


def test_it_is_half_of_what_the_slowest_may_take() -> None:
    assert told({"worker": _ON_GPUS, "planner": _PLANNER}) == ("1800", "1800")
    slow: Manifest = {**_ON_GPUS, "imageMinutes": 10, "startupMinutes": 90}
    pools: Manifest = {"prefill": slow, "decode": _ON_GPUS}
    assert told({"pools": pools, "planner": _PLANNER}) == ("1800", "3000")


def test_keda_s_pools_count_too() -> None:
    decode = {**_ON_GPUS, "imageMinutes": 5, "startupMinutes": 15, "autoscaling": {"enabled": True}}
    metrics = {"prometheus": "http://prometheus:9090"}
    assert told({"pools": {"decode": decode}, "metrics": metrics}) == ("600", None)


def test_patience_is_never_less_than_by_default() -> None:
    fast: Manifest = {**_ON_GPUS, "imageMinutes": 2, "startupMinutes": 4}
    assert told({"worker": fast, "planner": _PLANNER}) == ("180", "600")


def test_what_is_said_stays() -> None:
    said = told(
        {
            "worker": _ON_GPUS,
            "planner": {**_PLANNER, "options": {"startPatienceS": 900}},
            "router": {"options": {"scaleNoticeS": 240}},
        }
    )
    assert said == ("240", "900")
