"""What drafts gain: the time that plain steps take for the same tokens, over what theirs took."""

from __future__ import annotations

from typing import Any, cast

import pytest

from engine.step.draft_meter import DraftMeter
from engine.step.meters.draft_price import DraftPrice
from engine.step.meters.load_meter import LoadMeter
from engine.step.meters.verified_drafts import VerifiedRows
from engine.step.planning.plan import StepPlan
from engine.step.requests.draft_tally import DraftTally
from engine.step.telling.draft_counts import DraftCounts
from tests.engine.step.engine_scenario import VirtualClock

PLAIN_S = 0.010
"""Of a step of two sequences."""


class Guessing:
    """What a DraftMeter asks a Speculation."""

    out: list[Any] = []

    def __init__(self, guess_s: float) -> None:
        self._guess_s = guess_s

    def take_s(self) -> float:
        return self._guess_s

    def note(self, verified: VerifiedRows | None, added_ms: float) -> None:
        pass


class Verified:
    """What it asks a Verification: of one step."""

    def __init__(self, rows: VerifiedRows) -> None:
        self.counts = DraftCounts()
        self._rows = rows

    def take_last(self) -> VerifiedRows:
        return self._rows


def measured(clock: VirtualClock, *, num_steps: int) -> LoadMeter:
    """By plain steps of two sequences."""
    meter = LoadMeter(price=DraftPrice())
    for _ in range(num_steps):
        meter.begin(clock())
        clock.now_s += PLAIN_S
        meter.end(clock(), has_work=True, chunks=(), num_decodes=2)
    return meter


def drafted(
    *, took_s: float, guess_s: float = 0.0, num_plain: int = 20
) -> tuple[DraftTally, DraftTally, DraftCounts]:
    """A step with drafts gives one request six tokens and the other one two."""
    clock, tallies = VirtualClock(), (DraftTally(num_steps=1), DraftTally(num_steps=1))
    meter = measured(clock, num_steps=num_plain)
    rows = VerifiedRows(2, 8, given=list(zip(tallies, (6, 2), strict=True)))
    verified = Verified(rows)
    told = cast(Any, Guessing(guess_s)), cast(Any, verified), meter, clock
    meter.begin(clock())
    clock.now_s += took_s
    plan = StepPlan(
        preempted=(), admitted=(), homes=(), decodes=(), chunks=(), draft_lengths={("a", 0): 5}
    )
    assert DraftMeter(*told).end_drafted(plan, has_work=True)
    return *tallies, verified.counts


@pytest.mark.parametrize("guess_s", [0.0, 0.005])
def test_the_gain_is_what_plain_steps_take_for_the_tokens_over_what_the_step_took(
    guess_s: float,
) -> None:
    much, little, counts = drafted(took_s=0.016, guess_s=guess_s)
    assert much.told.gain == pytest.approx(6 * 0.010 / 0.016, rel=1e-3)
    assert little.told.gain == pytest.approx(2 * 0.010 / 0.016, rel=1e-3)
    counts.note_guessing(0.0)
    counts.note_out([cast(Any, "news")])
    numbers = counts.take()
    assert numbers is not None
    assert numbers.plain_s == pytest.approx(4 * 0.010, rel=1e-3)
    assert numbers.took_s == pytest.approx(0.016, rel=1e-3)
    assert numbers.guess_s == guess_s


def test_drafts_that_do_not_pay_show_a_gain_below_one() -> None:
    _, little, _ = drafted(took_s=0.050)
    assert little.told.gain == pytest.approx(0.4, rel=1e-3)


def test_nothing_is_said_before_plain_steps_were_measured() -> None:
    much, _, _ = drafted(took_s=0.016, num_plain=0)
    assert (much.took_ms, much.told.gain) == (0.0, 0.0)
