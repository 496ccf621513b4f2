"""The router's Prometheus metrics; durations in seconds, as is the custom there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from cluster.generation import Timing, Usage
from router.telemetry.adapter_counts import AdapterCounts
from router.telemetry.class_metrics import ClassMetrics
from router.telemetry.member_metrics import MemberMetrics, MemberStanding
from router.telemetry.quick_counter import Count, QuickCounters
from router.telemetry.quick_histogram import QuickHistogram, QuickHistograms

_TTFT_BUCKETS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 1, 2, 5, 10, 30, 60, 300)
_TEXT_BUCKETS_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
_STAGES = ("queue", "prefill", "kv", "decode")
_stages_ms = attrgetter(*(f"{stage}_ms" for stage in _STAGES))
_ITL_BUCKETS_S = (0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 5)


class RouterMetrics:
    """One per router, with its own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter(
            "requests", "Requests by how they ended: ok, cancelled, or an error's code", "outcome"
        )
        self._ended_well = self.requests.labels("ok")
        self.routes = self._counter("routes", "Routing decisions", "reason")
        self.retries = self._counter(
            "retries", "Requests sent to another worker after one failed before any token"
        )
        self.hedges = self._counter(
            "hedges", "Requests that were sent to a second pair as well: their first token was late"
        )
        self.hedges_won = self._counter("hedges_won", "Of these, that went on with the second one")
        self.restarts = self._counter(
            "restarts",
            "Processes that the supervisor had to start again, by pool and cause",
            *("pool", "cause"),
        )
        self.warm_spares = Gauge(
            "splitserve_warm_spares",
            "Workers that are loaded and wait for a place",
            ["role"],
            registry=self.registry,
        )
        self.continued = self._counter(
            "streams_continued",
            "Answers that went on with another decode worker, by why they left the last one",
            "cause",
        )
        self.late_reads = self._counter(
            "vllm_late_reads",
            "Blocks of vLLM prefill servers that were read after their lease, as these say",
        )
        self.classes = ClassMetrics(self.registry)
        self.adapters = AdapterCounts(self.registry)
        self._time_tokens()
        self._count_tokens()
        self._count_events()

    def _time_tokens(self) -> None:
        self.ttft = QuickHistogram(
            "splitserve_ttft_seconds",
            "Arrival at the router until the first token left it",
            _TTFT_BUCKETS_S,
            self.registry,
        )
        stages = QuickHistograms(
            "splitserve_ttft_stage_seconds",
            "Parts of the time to first token; they add up to it",
            _TTFT_BUCKETS_S,
            self.registry,
            label="stage",
            values=_STAGES,
        )
        self.stages = stages.of
        self._stages = tuple(stages.of[stage] for stage in _STAGES)
        self.inter_token = QuickHistogram(
            "splitserve_inter_token_seconds",
            "Time between deliveries of one choice's tokens",
            _ITL_BUCKETS_S,
            self.registry,
        )
        self.pause = self._histogram(
            "stream_pause_seconds",
            "Between the last token of one decode worker and the next one of another",
            _TTFT_BUCKETS_S,
        )

    def _count_tokens(self) -> None:
        self.prompt_tokens = self._count("prompt_tokens", "Prompt tokens of finished requests")
        self.cached_tokens = self._count(
            "prefix_hit_tokens", "Prompt tokens whose KV was not computed again"
        )
        self.expected_tokens = self._count(
            "prefix_expected_tokens",
            "Prompt tokens that the index had expected to be cached where they were computed",
        )
        self.completion_tokens = self._count("completion_tokens", "Tokens generated")
        self.kv_bytes = self._count(
            "kv_bytes", "Bytes of KV that decode workers have read, of finished requests"
        )

    def _count_events(self) -> None:
        self.event_gaps = self._counter("kv_event_gaps", "Gaps found in workers' KV events")
        self.event_resyncs = self._counter("kv_event_resyncs", "Snapshots taken of workers' caches")
        self.doubts = self._counter(
            "prefix_doubts",
            "Workers asked for all that they have cached, since prompts found other than expected",
        )
        self.event_orphans = self._counter(
            "kv_event_orphan_blocks", "Stored blocks that fitted nothing the index knows"
        )
        self.events_left_out = self._counter(
            "kv_event_left_out_blocks",
            "Blocks in other engines' KV events that the index is not told of, by reason",
            "reason",
        )

    def watch_queue(self, num_queued: Callable[[], int], num_running: Callable[[], int]) -> None:
        """Requests waiting and running."""
        self._gauge("splitserve_queued_requests", "Requests waiting in the router", num_queued)
        self._gauge("splitserve_running_requests", "Requests dispatched", num_running)

    def watch_index(self, num_blocks: Callable[[], int]) -> None:
        """The prefix index."""
        self._gauge("splitserve_index_blocks", "Blocks in the prefix index", num_blocks)

    def watch_retries(self, used_share: Callable[[], float]) -> None:
        """The retry budget."""
        self._gauge(
            "splitserve_retry_budget_used_ratio",
            "Of the requests that may be sent a second time in ten seconds, the part that was",
            used_share,
        )

    def watch_discovery(self, is_current: Callable[[], bool]) -> None:
        """Whether those who find vLLM servers can see what there is now."""
        self._gauge(
            "splitserve_vllm_discovery_up",
            "1 while it is known which vLLM servers there are, 0 while the last list holds",
            is_current,
        )

    def watch_members(self, role: str, num_members: Callable[[], int]) -> None:
        """Called once per role."""
        if not hasattr(self, "_members"):
            self._members = Gauge(
                "splitserve_members", "Workers in the fleet", ["role"], registry=self.registry
            )
        self._members.labels(role).set_function(num_members)

    def watch_states(self, states: Callable[[], Iterable[MemberStanding]]) -> None:
        """Called once; each scrape asks."""
        self.registry.register(MemberMetrics(states))

    def finished(self, usage: Usage, timing: Timing | None) -> None:
        """A request ended well; None: nobody saw when its tokens came."""
        self._ended_well.inc()
        self.prompt_tokens.inc(usage.prompt_tokens)
        self.cached_tokens.inc(usage.cached_tokens)
        self.completion_tokens.inc(usage.completion_tokens)
        if timing is None:
            return
        self.kv_bytes.inc(timing.kv_bytes)
        self.ttft.observe(timing.ttft_ms / 1000)
        for stage, took_ms in zip(self._stages, _stages_ms(timing), strict=True):
            stage.observe(took_ms / 1000)

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(f"splitserve_{name}", help, labels, registry=self.registry)

    def _count(self, name: str, help: str) -> Count:
        return QuickCounters(f"splitserve_{name}", help, self.registry).of[()]

    def _histogram(
        self, name: str, help: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(
            f"splitserve_{name}", help, labels, buckets=buckets, registry=self.registry
        )

    def _gauge(self, name: str, help: str, value: Callable[[], float]) -> None:
        Gauge(name, help, registry=self.registry).set_function(value)


class TextMetrics:
    """Of the processes that read texts and bodies; by their names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.restarts = Counter(
            "splitserve_text_worker_ends", "Text workers that ended", ["worker"], registry=registry
        )
        self.task_seconds = Histogram(
            "splitserve_text_task_seconds",
            "Time that a text worker took for one task",
            ["worker"],
            buckets=_TEXT_BUCKETS_S,
            registry=registry,
        )
        self._waiting = Gauge(
            "splitserve_text_tasks_waiting",
            "Chats, texts and bodies that wait for a text worker",
            ["worker"],
            registry=registry,
        )
        self._absent = Gauge(
            "splitserve_text_worker_absent_seconds",
            "For how long there has been no such text worker; 0: there is one, or none is wanted",
            ["worker"],
            registry=registry,
        )

    def watch(
        self, worker: str, *, num_waiting: Callable[[], int], absent_s: Callable[[], float]
    ) -> None:
        """Called once for each."""
        self._waiting.labels(worker).set_function(num_waiting)
        self._absent.labels(worker).set_function(absent_s)
