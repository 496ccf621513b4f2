"""The end of a step with drafts: what its guesses took, and what became of them."""

from __future__ import annotations

from cluster.deadline import Clock
from engine.step.meters.load_meter import LoadMeter
from engine.step.meters.verified_drafts import VerifiedRows
from engine.step.planning.plan import StepPlan
from engine.step.speculation import Speculation
from engine.step.verification import Verification


class DraftMeter:
    """Told of every step, before the meter of loads."""

    def __init__(
        self,
        speculation: Speculation,
        verification: Verification,
        meter: LoadMeter,
        clock: Clock,
    ) -> None:
        self._speculation = speculation
        self._verification = verification
        self._meter = meter
        self._clock = clock

    def end_drafted(self, plan: StepPlan, *, has_work: bool) -> bool:
        """Books what guessing took, and ends a step that had drafts: it is measured. False: it had
        none, and is ended elsewhere. `has_work`: it leaves some."""
        if guess_s := self._speculation.take_s():
            self._meter.guessed(guess_s)
            self._verification.counts.note_guessing(guess_s)
        self._verification.counts.note_out(self._speculation.out)
        verified, added_ms = self._verification.take_last() if plan.draft_lengths else None, 0.0
        if verified is not None:
            now_s = self._clock()
            added_ms = self._meter.end_drafted(now_s, has_work=has_work, verified=verified)
            self._note_gain(verified, added_ms, guess_s * 1e3)
        self._speculation.note(verified, added_ms)
        return verified is not None

    def _note_gain(self, verified: VerifiedRows, added_ms: float, guess_ms: float) -> None:
        """Beside what plain steps of as many sequences take, as measured."""
        plain_ms = self._meter.costs.cost.decodes_ms(verified.num_decodes)
        if plain_ms <= 0.0:
            return  # nothing was measured yet
        num_each = verified.num_tokens / verified.num_decodes
        self._verification.counts.note_time(plain_ms * num_each, plain_ms + added_ms)
        verified.note_time(plain_ms, plain_ms + added_ms + guess_ms)
