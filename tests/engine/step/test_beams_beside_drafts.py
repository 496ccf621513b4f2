"""A beam search has no drafts, and takes nobody else's."""

from __future__ import annotations

import pytest
from msgspec import structs

from engine.contract.commands import Submit
from engine.offline.queue import Completion, collect
from engine.step.drafting.draft import MAX_DRAFT_TOKENS
from tests.engine.step.engine_scenario import expected_tokens, request, small_engine, small_replica
from tests.engine.step.engine_scenario import step as one_step
from tests.engine.step.guessing import TickingClock, oracles
from tests.engine.step.test_beams import assert_empty, assert_right, search


@pytest.mark.parametrize("mistakes", [0.0, 0.2])
@pytest.mark.parametrize("width", [2, 3])
def test_others_are_drafted_for_beside_a_search_and_all_answers_are_those_alone(
    width: int, mistakes: float
) -> None:
    engine = small_engine(
        small_replica(256),
        clock=TickingClock(),
        make_guesser=oracles(mistakes, seed=width, shortest=MAX_DRAFT_TOKENS),
        max_batch_tokens=64,
        max_num_seqs=8,
    )
    bodies = [request(f"plain {i}", [i, 1, 2], max_tokens=40) for i in range(2)]
    bodies = [structs.replace(body, prediction=expected_tokens(body)) for body in bodies]
    searched = search("search", [1, 2], width=width, max_tokens=24, stop_token_ids=())
    for body in (searched, *bodies):
        engine.apply(Submit(body))
    found = {body.request_id: Completion() for body in (searched, *bodies)}
    num_beside, num_steps = 0, 0
    while not all(done.ended for done in found.values()):
        had = sum(len(found[body.request_id].token_ids()) for body in bodies)
        is_searching = found["search"].ended is None
        collect(one_step(engine), found)
        has = sum(len(found[body.request_id].token_ids()) for body in bodies)
        num_beside += is_searching and has - had > len(bodies)
        num_steps += 1
        assert num_steps < 200
    assert num_beside > 0
    assert_right(found["search"], searched)
    for body in bodies:
        assert found[body.request_id].token_ids() == expected_tokens(body)
    assert_empty(engine)
