"""Metrics of streams whose rest another connection may ask for."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


class ResumeMetrics:
    """Of one router."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._resumes = Counter(
            "splitserve_resumes",
            "Streams whose rest was asked for, by what came of it: resumed, or not_resumable",
            ["outcome"],
            registry=registry,
        )

    def asked(self, *, is_known: bool) -> None:
        """For the rest of a stream."""
        self._resumes.labels("resumed" if is_known else "not_resumable").inc()

    def watch(self, num_kept: Callable[[], int], num_bytes: Callable[[], int]) -> None:
        """Called once."""
        kept = "splitserve_resumable_streams", "Streams that are kept, running or not"
        Gauge(*kept, registry=self._registry).set_function(num_kept)
        size = "splitserve_resumable_bytes", "What they take"
        Gauge(*size, registry=self._registry).set_function(num_bytes)
