"""What a router needs to keep streams for other connections, put together."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.config import RouterOptions
from cluster.process.loop_share import LoopShare
from cluster.world import World
from router.front.resumption import Resumption
from router.front.served_model import ServedModel
from router.resume.kept_answers import KeepingLimits, KeptAnswers
from router.resume.shared_answers import SharedAnswers
from router.resume.write_behind import WriteBehind


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
        shared: SharedAnswers | None = None,
    ) -> Keeping | None:
        """None: no stream is to be kept."""
        if not options.resume_within_s:
            return None
        limits = KeepingLimits(
            within_s=options.resume_within_s,
            max_bytes=options.max_resumable_bytes,
            max_answers=options.max_resumable_answers,
        )
        answers = KeptAnswers(limits, world.clock)
        return cls(
            Resumption(model, answers, shared, share=share),
            WriteBehind(answers, shared, world.clock, world.sleep),
        )
