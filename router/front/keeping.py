"""What a router needs to keep streams for other connections, put together."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from cluster.config import RouterOptions
from cluster.process.loop_share import LoopShare
from cluster.world import World
from router.front.resumption import Resumption
from router.front.served_model import ServedModel
from router.resume.kept_answers import KeepingLimits, KeptAnswers
from router.resume.stored_answers import StoredAnswers
from router.resume.write_behind import WriteBehind, longest_unwritten_s
from router.store.shared_store import SharedStore
from router.telemetry.resume_metrics import ResumeMetrics


@dataclass(frozen=True, slots=True)
class Keeping:
    """`behind` runs as long as the router."""

    resumption: Resumption
    behind: WriteBehind

    @classmethod
    def of(
        cls,
        options: RouterOptions,
        model: ServedModel,
        world: World,
        share: LoopShare,
        registry: CollectorRegistry,
        *,
        store: SharedStore | None = None,
    ) -> Keeping | None:
        """None: no stream is to be kept."""
        asked = options.resumption
        if not asked.resume_within_s:
            return None
        limits = KeepingLimits(
            within_s=asked.resume_within_s,
            max_bytes=asked.max_resumable_bytes,
            max_answers=asked.max_resumable_answers,
        )
        answers = KeptAnswers(limits, world.clock)
        unwritten_s = longest_unwritten_s(limits.max_answers)
        shared = None
        if store is not None:
            shared = StoredAnswers(store, asked.resume_within_s, unwritten_s)
        metrics = ResumeMetrics(registry)
        metrics.watch(lambda: len(answers), lambda: answers.num_bytes)
        return cls(
            Resumption(model, answers, shared, share=share, metrics=metrics),
            WriteBehind(answers, shared, world.clock, world.sleep),
        )
