"""Where exported prompts stand in the queue, as their readers are told."""

from __future__ import annotations

from engine.contract.commands import PrefillMode, ReleaseExport, Submit
from engine.step.telling.queue_report import INTERVAL_S
from tests.engine.step.engine_scenario import VirtualClock, request, small_engine, small_replica

PROMPT = [1, 2, 3, 4, 5, 6, 0, 1]


def places(engine, clock: VirtualClock) -> dict[str, int]:
    """What one step says, a while after the one before."""
    clock.now_s += 2 * INTERVAL_S
    return {place.request_id: place.tokens_ahead for place in engine.step().places}


def test_a_prompt_s_place_falls_with_every_step_of_those_before_it_and_of_its_own() -> None:
    clock = VirtualClock()
    engine = small_engine(small_replica(num_blocks=32), clock=clock, max_batch_tokens=4)
    engine.apply(Submit(request("local", PROMPT, max_tokens=1)))
    engine.apply(Submit(request("a", PROMPT[::-1], mode=PrefillMode.EXPORT)))
    seen = [places(engine, clock)["a"] for _ in range(3)]
    assert seen == sorted(seen, reverse=True) and len(set(seen)) == 3
    assert seen[0] <= 2 * len(PROMPT)


def test_a_place_that_has_not_changed_is_no_news() -> None:
    """The first prompt's blocks are pinned for its reader, and leave no room for the second."""
    clock = VirtualClock()
    engine = small_engine(small_replica(num_blocks=6), clock=clock, max_batch_tokens=64)
    engine.apply(Submit(request("a", PROMPT, mode=PrefillMode.EXPORT)))
    engine.step()
    engine.apply(Submit(request("b", PROMPT[::-1], mode=PrefillMode.EXPORT)))
    assert places(engine, clock) == {"b": len(PROMPT)}
    assert [places(engine, clock) for _ in range(3)] == [{}, {}, {}]
    engine.apply(ReleaseExport("a"))
    places(engine, clock)
    assert [e.error_code for e in engine.step().ended] == []
    assert len(engine.table) == 1


def test_the_places_are_looked_at_no_more_often_than_readers_are_told() -> None:
    clock = VirtualClock()
    engine = small_engine(small_replica(num_blocks=32), clock=clock, max_batch_tokens=2)
    engine.apply(Submit(request("a", PROMPT, mode=PrefillMode.EXPORT)))
    assert engine.step().places
    assert not engine.step().places


def test_a_long_prompt_s_place_is_behind_the_short_one_that_is_computed_before_it() -> None:
    clock = VirtualClock()
    engine = small_engine(small_replica(num_blocks=64), clock=clock, max_batch_tokens=4)
    engine.apply(Submit(request("long", 5 * PROMPT, mode=PrefillMode.EXPORT)))
    engine.apply(Submit(request("short", PROMPT, mode=PrefillMode.EXPORT)))
    told = places(engine, clock)
    assert told["long"] == told["short"] + 5 * len(PROMPT)
