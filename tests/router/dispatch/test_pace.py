"""How often places come free, and for how long that is believed."""

import pytest

from router.dispatch.pace import MAX_FIRST_GAP_S, MEMORY_S, Pace
from tests.manual_clock import ManualClock


def after(pace: Pace, clock: ManualClock, *gaps_s: float) -> None:
    """Somebody begins to wait, and a place comes free after each of these."""
    pace.waits()
    for gap_s in gaps_s:
        clock.advance(gap_s)
        pace.granted()


def test_a_pace_is_the_mean_of_the_newest_gaps() -> None:
    clock = ManualClock()
    pace = Pace(clock)
    assert pace.gap_s is None
    after(pace, clock, 1.0, 3.0)
    assert pace.gap_s == pytest.approx(2.0)
    after(pace, clock, *[0.1] * 200)
    assert pace.gap_s == pytest.approx(0.1, rel=0.01)


def test_one_bad_wait_counts_no_more_than_so_much() -> None:
    clock = ManualClock()
    pace = Pace(clock)
    after(pace, clock, 30.0)
    assert pace.gap_s == MAX_FIRST_GAP_S


def test_what_was_measured_long_ago_is_forgotten() -> None:
    clock = ManualClock()
    pace = Pace(clock)
    after(pace, clock, 4.0)
    clock.advance(MEMORY_S)
    assert pace.gap_s == 4.0
    clock.advance(1.0)
    assert pace.gap_s is None
    after(pace, clock, 0.5)
    assert pace.gap_s == 0.5


def test_places_that_nobody_waited_for_make_the_gap_shorter_and_never_longer() -> None:
    clock = ManualClock()
    pace = Pace(clock)
    pace.granted_at_once()
    assert pace.gap_s is None, "nothing is known of a line by who did not wait"
    after(pace, clock, 5.0)
    for _ in range(60):
        clock.advance(0.1)
        pace.granted_at_once()
    known_s = pace.gap_s
    assert known_s is not None and known_s < 0.5
    clock.advance(20.0)
    pace.granted_at_once()
    assert pace.gap_s == pytest.approx(known_s)
