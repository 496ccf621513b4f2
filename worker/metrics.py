"""A worker's Prometheus page: its own registry, one class, names with units."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from cluster import VERSION
from cluster.generation import EngineLoad, Timing, Usage
from cluster.identity import Role
from cluster.rank_facts import RankWait
from engine.contract.draft_numbers import DraftNumbers
from engine.contract.expert_numbers import ExpertNumbers
from worker.draft_metrics import DraftMetrics
from worker.expert_metrics import ExpertMetrics
from worker.rank_metrics import RankMetrics
from worker.work_metrics import WorkMetrics

_STAGE_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_TRANSFER_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)
_BLOCK_STATES = ("free", "cached", "active", "exported", "receiving")


class WorkerMetrics:
    """Counts what a worker does. Methods are cheap; all calls from the event loop's thread.

    `registry` is served by `cluster.metrics_server`. Label values come from fixed sets: error codes
    of `cluster.errors`, block states, handoff outcomes.
    """

    def __init__(self, role: Role, worker_id: str) -> None:
        self.registry = CollectorRegistry()
        labels = {"role": role.value, "worker_id": worker_id}
        self._define_requests()
        self._define_engine()
        self._define_transfers()
        self._experts = ExpertMetrics(self.registry)
        self._drafts = DraftMetrics(self.registry)
        self._ranks = RankMetrics(self.registry)
        Info("splitserve_worker", "This worker.", registry=self.registry).info(
            {**labels, "version": VERSION}
        )

    def _define_requests(self) -> None:
        registry = self.registry
        self._requests = Counter(
            "splitserve_worker_requests",
            "Requests that ended, by outcome: ok or an error code.",
            ["outcome"],
            registry=registry,
        )
        self._stages = Histogram(
            "splitserve_worker_ttft_stage_seconds",
            "Parts of the time to first token: queue, prefill, kv.",
            ["stage"],
            buckets=_STAGE_BUCKETS_S,
            registry=registry,
        )
        self._prompt_tokens = Counter(
            "splitserve_worker_prompt_tokens", "Prompt tokens of ended requests.", registry=registry
        )
        self._hit_tokens = Counter(
            "splitserve_worker_prefix_hit_tokens",
            "Prompt tokens whose KV did not have to be computed.",
            registry=registry,
        )
        self._generated_tokens = Counter(
            "splitserve_worker_generated_tokens", "Tokens of ended requests.", registry=registry
        )

    def _define_engine(self) -> None:
        registry = self.registry
        self._step = Gauge(
            "splitserve_worker_decode_step_seconds",
            "A decode step, moving average.",
            registry=registry,
        )
        self._step_gap = Gauge(
            "splitserve_worker_step_gap_p99_seconds",
            "Idle time between steps while there was work, 99th percentile.",
            registry=registry,
        )
        self._sequences = Gauge(
            "splitserve_worker_sequences", "Requests by state.", ["state"], registry=registry
        )
        self._blocks = Gauge(
            "splitserve_worker_kv_blocks", "KV blocks by state.", ["state"], registry=registry
        )
        self._leases = Gauge(
            "splitserve_worker_kv_leases", "Exports and receptions alive.", registry=registry
        )
        self._preemptions = Counter(
            "splitserve_worker_preemptions", "Sequences that lost their blocks.", registry=registry
        )
        self._num_preemptions = 0
        self._work = WorkMetrics(registry)
        self._prefill_rate = Gauge(
            "splitserve_worker_prefill_tokens_per_second",
            "Prompt tokens computed, moving average.",
            registry=registry,
        )

    def _define_transfers(self) -> None:
        registry = self.registry
        self._transfer_bytes = Counter(
            "splitserve_worker_kv_transfer_bytes",
            "Bytes read from prefill workers.",
            registry=registry,
        )
        self._transfer_seconds = Histogram(
            "splitserve_worker_kv_transfer_seconds",
            "One read of a run of blocks, verification included.",
            buckets=_TRANSFER_BUCKETS_S,
            registry=registry,
        )
        self._transfer_failures = Counter(
            "splitserve_worker_kv_transfer_failures",
            "Sources that had to be given up, by error code.",
            ["reason"],
            registry=registry,
        )
        self._handoffs = Counter(
            "splitserve_worker_handoffs",
            "Handoffs by outcome: first, next, local, cancelled; exports: done, abandoned.",
            ["outcome"],
            registry=registry,
        )
        self._prefixes_moved = Counter(
            "splitserve_worker_prefix_moved_tokens",
            "Cached tokens handed on to other workers (out), and taken over from them (in).",
            ["direction"],
            registry=registry,
        )
        self._transport = Info(
            "splitserve_worker_kv_transport", "The KV transport in use.", registry=registry
        )

    def request_ended(self, outcome: str, usage: Usage, timing: Timing | None) -> None:
        """`outcome` is "ok" or an error code; `timing` is None when no first token was made."""
        self._requests.labels(outcome).inc()
        self._prompt_tokens.inc(usage.prompt_tokens)
        self._hit_tokens.inc(usage.cached_tokens)
        self._generated_tokens.inc(usage.completion_tokens)
        if timing is not None:
            self._stages.labels("queue").observe(timing.queue_ms / 1000)
            self._stages.labels("prefill").observe(timing.prefill_ms / 1000)
            self._stages.labels("kv").observe(timing.kv_ms / 1000)

    def engine_load(self, load: EngineLoad) -> None:
        """The engine's latest numbers."""
        self._step.set(load.decode_step_ms / 1000)
        self._step_gap.set(load.step_gap_p99_ms / 1000)
        self._sequences.labels("running").set(load.num_running)
        self._sequences.labels("waiting").set(load.num_waiting)
        for state in _BLOCK_STATES:
            self._blocks.labels(state).set(getattr(load, f"{state}_blocks"))
        self._ranks.blocks_left(load.home_blocks_left)
        self._leases.set(load.num_leases)
        self._preemptions.inc(max(0, load.num_preemptions - self._num_preemptions))
        self._num_preemptions = load.num_preemptions
        self._work.take(load)
        self._prefill_rate.set(load.prefill_tokens_per_s)

    def experts_are(self, numbers: ExpertNumbers) -> None:
        """How even the load of a mixture's experts is; said when it has changed."""
        self._experts.take(numbers)

    def drafts_were(self, numbers: DraftNumbers) -> None:
        """What became of drafts; said when it has changed."""
        self._drafts.take(numbers)

    def rank_waits(self, waits: Sequence[RankWait]) -> None:
        """Of an engine of several ranks, its latest; those of a single one are none."""
        self._ranks.take(waits)

    def transferred(self, num_bytes: int, duration_ms: float) -> None:
        """One read of a run of blocks that verified."""
        self._transfer_bytes.inc(num_bytes)
        self._transfer_seconds.observe(duration_ms / 1000)

    def transfer_failed(self, reason: str) -> None:
        """A source was given up; `reason` is an error code."""
        self._transfer_failures.labels(reason).inc()

    def handoff_ended(self, outcome: str) -> None:
        """`outcome` from the fixed set in the metric's help."""
        self._handoffs.labels(outcome).inc()

    def prefixes_moved(self, direction: str, num_tokens: int) -> None:
        """Cached tokens that others took over ("out"), or that this worker did ("in")."""
        self._prefixes_moved.labels(direction).inc(num_tokens)

    def transport_is(self, words: str) -> None:
        """The transport in use, in words."""
        self._transport.info({"transport": words})
