"""What is true of every drafter that computes its guesses: what they take, how often they are kept,
and whether it may go on.

    begin, or rest   each step; price and rates fade, and the rates begin anew after a rest
    promise          a sequence's prospect, at the price of now
    draft            guesses are made, timed and priced
    read             what makes later ones possible is read, and timed

A failure costs the drafts of a step, and whatever was read is in doubt; after MAX_FAILURES nothing
is asked any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as Ordered

import structlog

from cluster.deadline import Clock
from engine.contract.draft_numbers import DrafterKind
from engine.step.batch.step_work import Wanted
from engine.step.drafters.draft_sampling import Making
from engine.step.drafters.drafter import DraftProspect, DraftTime
from engine.step.drafters.guess_price import GuessPrice
from engine.step.drafting.draft import Draft
from engine.step.drafting.kept_rates import SharedKeptRates
from engine.step.planning.step_cost import StepCost
from engine.step.requests.sequence import Sequence

_LOG = structlog.get_logger()
MAX_FAILURES = 3


class GuessCare:
    """Of one drafter, which owns it. It raises nothing of what it calls."""

    def __init__(
        self,
        kind: DrafterKind,
        share: float,
        *,
        doubt: Callable[[], None],
        noun: str,
        name: str,
        clock: Clock = time.monotonic,
    ) -> None:
        """`share`: bytes of the weights that guess over the target's. `doubt`: what was read is no
        more relied on. `noun`, `name`: what it is called in a log."""
        self.price = GuessPrice(share)
        self.rates = SharedKeptRates()
        self.cost, self.least = StepCost(), 0.0
        """Of the step that is planned; rows with a chance under `least` are not verified."""
        self.guess_ms = 0.0
        """What a token takes in it."""
        self.is_resting = False
        self._kind, self._doubt, self._clock = kind, doubt, clock
        self._noun, self._name = noun, name
        self._num_promised = self._num_failures = 0
        self._guess_s = self._read_s = 0.0

    @property
    def is_out(self) -> bool:
        """It has failed too often."""
        return self._num_failures >= MAX_FAILURES

    def begin(self, cost: StepCost, num_decodes: int, least: float) -> None:
        """See Drafter."""
        self.cost, self.least = cost, least
        self.guess_ms = self.price.token_ms(self._num_promised or max(1, num_decodes), cost)
        self._num_promised = 0
        self._fade()
        if self.is_resting:
            self.is_resting = False
            self.rates.begin_anew()

    def rest(self) -> None:
        """See Drafter."""
        self.is_resting = True
        self._fade()

    def promise(self, chances: Ordered[float]) -> DraftProspect:
        """Of a sequence that can be guessed for at once."""
        self._num_promised += 1
        return DraftProspect(chances, self.guess_ms)

    def draft(
        self,
        wanted: Ordered[Wanted],
        is_ready: Callable[[Sequence], bool],
        guess: Callable[[list[Making]], tuple[int, int]],
    ) -> list[Draft]:
        """See Drafter. `is_ready`: what was known of a sequence before the plan holds still: whose
        block was copied for its next token has lost what was read there, and has no draft this
        time. `guess` fills the makings, and returns in how many rounds and rows."""
        began_s = self._clock()
        makings = [Making.of(one) for one in wanted]
        ready = [making for making in makings if is_ready(making.sequence)]
        try:
            if ready:
                self._guess(ready, guess)
        except Exception:
            self._fail()
            return [Draft([], [], self._kind) for _ in wanted]
        finally:
            self._guess_s += self._clock() - began_s
        return [making.draft(self._kind) for making in makings]

    def read(self, work: Callable[[], int]) -> None:
        """For later drafts. `work` returns how many tokens were read of texts that came without;
        0: of none, and what it took is no price of them."""
        began_s, num_tokens = self._clock(), 0
        try:
            num_tokens = work()
        except Exception:
            self._fail()
        took_s = self._clock() - began_s
        self._read_s += took_s
        if num_tokens:
            self.price.note_reading(num_tokens, took_s * 1e3)

    def take_time(self) -> DraftTime:
        """See Drafter."""
        taken = DraftTime(self._guess_s, self._read_s)
        self._guess_s = self._read_s = 0.0
        return taken

    def _guess(self, ready: list[Making], guess: Callable[[list[Making]], tuple[int, int]]) -> None:
        began_s = self._clock()
        num_rounds, num_rows = guess(ready)
        self.price.note_drafts(num_rounds, num_rows, (self._clock() - began_s) * 1e3, self.cost)

    def _fade(self) -> None:
        self.price.note_idle()
        self.rates.fade()

    def _fail(self) -> None:
        """Whatever was read is in doubt; requests go on without."""
        self._doubt()
        self._num_failures += 1
        _LOG.exception(
            f"the {self._noun} has failed; its guesses are left out",
            **{self._noun.replace(" ", "_"): self._name},
            is_for_good=self.is_out,
        )
