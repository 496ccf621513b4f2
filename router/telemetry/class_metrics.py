"""What becomes of requests by their class: of tenants there may be any number, so that none is a
label."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from cluster.errors import NotReady, status_of
from cluster.generation import Timing, Usage
from router.telemetry.quick_counter import QuickCounters
from router.telemetry.quick_histogram import QuickHistograms
from router.tenants.limits import LimitKind
from router.tenants.priority import Priority

_KINDS = ("prompt", "cached", "completion")
_TTFT_BUCKETS_S = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 1, 2, 5, 10, 30, 60, 300)


class ClassMetrics:
    """Of one router."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._refusals = Counter(
            "splitserve_refusals",
            "Requests that were told to come again, by class and why",
            ["class", "reason"],
            registry=registry,
        )
        self.num_refused = 0
        """Of all classes."""
        self._gave_way = Counter(
            "splitserve_preempted_requests",
            "Requests that gave their place to a higher class before their first token, by class",
            ["class"],
            registry=registry,
        )
        ttft = QuickHistograms(
            "splitserve_class_ttft_seconds",
            "Arrival at the router until the first token left it, by class",
            _TTFT_BUCKETS_S,
            registry,
            label="class",
            values=Priority,
        )
        tokens = QuickCounters(
            "splitserve_class_tokens",
            "Tokens of finished requests, by class: prompt, cached of these, completion",
            registry,
            labels=("class", "kind"),
            rows=((each, kind) for each in Priority for kind in _KINDS),
        )
        self._queued = Gauge(
            "splitserve_class_queued_requests",
            "Requests waiting in the router, by class",
            ["class"],
            registry=registry,
        )
        self._degradation = Gauge(
            "splitserve_degradation_steps", "Of --degrade, that are in force", registry=registry
        )
        self._ttft = ttft.of
        self._prompt, self._cached, self._completion = (
            {each: tokens.of[each, kind] for each in Priority} for kind in _KINDS
        )

    def watch(self, num_queued: Callable[[Priority], int], num_steps: Callable[[], int]) -> None:
        """Called once."""
        for each in Priority:
            self._queued.labels(each).set_function(partial(num_queued, each))
        self._degradation.set_function(num_steps)

    def finished(self, priority: Priority, usage: Usage, timing: Timing | None) -> None:
        """A request ended well; None: nobody saw when its tokens came."""
        if timing is not None:
            self._ttft[priority].observe(timing.ttft_ms / 1000)
        self._prompt[priority].inc(usage.prompt_tokens)
        self._cached[priority].inc(usage.cached_tokens)
        self._completion[priority].inc(usage.completion_tokens)

    def gave_way(self, priority: Priority) -> None:
        """A request left its workers for one of a higher class."""
        self._gave_way.labels(priority).inc()

    def refused(self, priority: Priority, error: NotReady) -> None:
        """The client was told to come again: at the door, or after its worker had begun, where no
        other could take what was left."""
        self._refusals.labels(priority, status_of(error).code).inc()
        self.num_refused += 1


class LimitMetrics:
    """Of the keys of one router."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._refusals = Counter(
            "splitserve_limited_requests",
            "Requests that a limit of their key has refused, by class and limit",
            ["class", "limit"],
            registry=registry,
        )

        self._alone = Counter(
            "splitserve_limits_alone",
            "Requests that counted at this router alone: the store that routers share was away",
            registry=registry,
        )

        self._left = Counter(
            "splitserve_limits_left",
            "Requests whose client left while the store was asked for what their keys may have",
            registry=registry,
        )

    def client_left(self) -> None:
        """Before anything else was done for it; no other counter of requests has it."""
        self._left.inc()

    def counted_alone(self) -> None:
        """By the router's own part of the limits."""
        self._alone.inc()

    def refused(self, priority: Priority, kind: LimitKind) -> None:
        """Before anything was spent."""
        self._refusals.labels(priority, kind).inc()
