"""A drafter with its accounts: whether a step asks it, and what the step made of that."""

from __future__ import annotations

from engine.step.drafters.drafter import NO_TIME, Drafter
from engine.step.drafting.draft_account import MOST_CREDIT, DraftAccount, DraftAccounts
from engine.step.meters.verified_drafts import VerifiedRows
from engine.step.planning.step_cost import StepCost

_LOST_CORE = MOST_CREDIT
"""Plain steps: what took longer than so many beyond what is usual lost its core, and counts as
that."""
_NEWEST = 0.25
"""Of the last step, in what is usual."""


class DrafterTaking:
    """Of one engine. A drafter without a price has no account, as lookup: each text is asked by its
    own luck (PacedGuesser), and a new one may be a copy whatever the others were."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.has_accounts = drafter.has_price
        self.asking_s = 0.0
        """Of this step, what asking for prospects took."""
        self._accounts = DraftAccounts()
        self._account: DraftAccount | None = None
        self._num_decodes = 0
        self._time = NO_TIME
        self._usual_ms = 0.0
        """Of a step's guesses."""

    def begin(self, cost: StepCost, num_decodes: int, least: float) -> bool:
        """A step of so many decodes is planned. False: it is none of this drafter's."""
        self._num_decodes, self.asking_s = num_decodes, 0.0
        if self.has_accounts:
            self._account = account = self._accounts.of(num_decodes)
            if account.is_resting:
                if num_decodes:
                    account.pass_by()
                self.drafter.rest()
                return False
        self.drafter.begin(cost, num_decodes, least)
        return True

    def take_s(self) -> float:
        """Seconds that its guesses took in this step."""
        self._time = self.drafter.take_time()
        return self._time.all_s

    def note(self, verified: VerifiedRows | None, added_ms: float, plain_ms: float) -> None:
        """See Speculation; `plain_ms`: of a step without drafts."""
        if (account := self._account) is None:
            return
        spent_ms = self._without_stalls(1e3 * (self._time.guess_s + self.asking_s), plain_ms)
        num_kept = 0
        if verified is not None:
            own = [draft for draft in verified.drafts if draft.drafter is self.drafter.kind]
            num_kept = sum(draft.num_kept for draft in own)
            counts_ms = min(added_ms, _LOST_CORE * plain_ms)
            spent_ms += counts_ms * sum(draft.weight for draft in own) / verified.weight
        account.invest(1e3 * self._time.read_s / plain_ms)
        account.note(num_kept / max(1, self._num_decodes) - spent_ms / plain_ms)

    def _without_stalls(self, took_ms: float, plain_ms: float) -> float:
        """As much of it as guessing may have taken: by and by all, where it goes on."""
        counts_ms = min(took_ms, 2 * self._usual_ms + _LOST_CORE * plain_ms)
        self._usual_ms += _NEWEST * (counts_ms - self._usual_ms)
        return counts_ms
