"""Options of a planner: which pools it sizes, by what, and how fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cluster.option_field import host_option, option, port_option, text_option
from cluster.option_value import TextForm

_RANGE = r"[a-z]([-a-z0-9]*[a-z0-9])?=[0-9]{1,4}\.\.[0-9]{1,4}"
POOL_SIZES = TextForm(
    rf"{_RANGE}(,{_RANGE})*", "a range of sizes for each pool, such as prefill=1..8,decode=2..16"
)


def _seconds(default: float, help: str) -> Any:
    return option(default, help, low=0, high=86_400)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRules:
    """What a planner decides by. Pressures are parts of the router's budgets: 1 is at one."""

    look_interval_s: float = option(5.0, "between two looks at the fleet", low=0.1, high=60)
    scale_target: float = option(
        0.7,
        "part of the router's budgets (--ttft-budget-ms, --itl-budget-ms, --scale-notice-s) at "
        "which pools are kept",
        low=0.05,
        high=10,
    )
    grow_after_s: float = _seconds(15.0, "a pool grows when it was over the target for so long")
    grow_every_s: float = _seconds(
        60.0, "and not again before so long after the new workers were ready"
    )
    max_new_workers: int = option(
        4, "that a pool grows by at once; and it at most doubles", low=1, high=1024
    )
    shrink_after_s: float = _seconds(
        600.0,
        "a pool gets smaller, by one worker, when one less was enough for so long without a break",
    )
    shrink_every_s: float = _seconds(120.0, "and not again before so long after any change")
    start_patience_s: float = _seconds(
        600.0,
        "a pool that changes is waited for so long; then others of its role may grow in its place",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerOptions:
    """One planner of a fleet."""

    router: str = option(
        "127.0.0.1:50051",
        "host:port of the routers' gRPC for the fleet, with commas; dns+host:port: at each address "
        "of a name, which is looked up again and again",
    )
    kubernetes: str | None = option(
        None,
        "[NAMESPACE/]RELEASE of the chart whose pools it sizes, at the API server; default: those "
        "of the supervisor (`splitserve serve`) of the router's fleet",
    )
    pools: str | None = text_option(
        None,
        "sizes that each pool may have, such as prefill=1..8,decode=2..16; of several of one role "
        "the first grows first and shrinks last; what is not named is left as it is",
        POOL_SIZES,
    )
    dry_run: bool = option(False, "say what it would do and why, and change nothing")
    host: str = host_option("127.0.0.1", "address of the Prometheus port")
    metrics_port: int = port_option(0, "Prometheus port; 0 takes a free one")
    rules: PlanRules = option(PlanRules, "")
