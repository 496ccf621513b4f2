"""The table of states is the only way through a life."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.step.requests.lifecycle import FINAL, TRANSITIONS, Life, SequenceState
from tests.engine.step.engine_scenario import VirtualClock


def test_a_life_stamps_the_first_entry_into_each_state_and_counts() -> None:
    clock, counts = VirtualClock(), Counter[SequenceState]()
    life = Life(clock, counts)
    clock.now_s += 1
    life.advance(SequenceState.PREFILLING)
    clock.now_s += 1
    life.advance(SequenceState.QUEUED)
    clock.now_s += 1
    life.advance(SequenceState.PREFILLING)
    assert life.entered_s(SequenceState.PREFILLING) == 101.0
    assert life.entered_s(SequenceState.DECODING) is None
    assert +counts == Counter({SequenceState.PREFILLING: 1})


@pytest.mark.parametrize("state", SequenceState)
@pytest.mark.parametrize("following", SequenceState)
def test_a_transition_outside_the_table_is_refused(
    state: SequenceState, following: SequenceState
) -> None:
    life = Life(VirtualClock(), Counter())
    life.state = state
    if following in TRANSITIONS[state]:
        life.advance(following)
        assert life.state is following
    else:
        with pytest.raises(AssertionError):
            life.advance(following)


def test_every_state_but_the_last_can_end_in_every_way_and_the_last_ones_never_change() -> None:
    for state, following in TRANSITIONS.items():
        assert following == frozenset() if state in FINAL else following >= FINAL


def test_a_forked_life_has_the_same_past_and_its_own_future() -> None:
    counts = Counter[SequenceState]()
    life = Life(VirtualClock(), counts)
    life.advance(SequenceState.PREFILLING)
    other = life.fork()
    other.advance(SequenceState.DECODING)
    assert life.state is SequenceState.PREFILLING
    assert other.entered_s(SequenceState.QUEUED) == 100.0
    assert +counts == Counter({SequenceState.PREFILLING: 1, SequenceState.DECODING: 1})
