"""How much of each draft is verified: what gives more tokens in a millisecond, of what is left."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from engine.step.planning.draft_lengths import (
    LEAST_GAIN,
    draft_lengths,
    least_chance,
    speedup,
)
from engine.step.planning.plan import Budget, RunningView, SequenceKey
from engine.step.planning.scheduler import schedule
from engine.step.planning.step_cost import StepCost, draft_weight

COST = StepCost(base_ms=2.5, row_ms=0.35, draft_row_ms=0.25)


def view(number: int, *chances: float, room: int = 15, **changes: object) -> RunningView:
    given: dict[str, object] = {
        "key": (number, 0),
        "num_remaining": 1,
        "is_decode": True,
        "blocks_wanted": 0,
        "blocks_freed": 1,
        "is_preemptible": True,
        "home": 0,
        "chances": chances,
        "room_tokens": room,
        "block_tokens": 16,
    }
    return RunningView(**(given | changes))  # type: ignore[arg-type]


def powers(chance: float, count: int = 16) -> list[float]:
    return [chance**i for i in range(1, count + 1)]


def lengths(views: list[RunningView], cost: StepCost = COST, **limits: int) -> dict[int, int]:
    given = {"num_decodes": len(views), "max_rows": 500, "max_blocks": 500} | limits
    return {key[0]: n for key, n in draft_lengths(views, cost, **given).items()}


def test_a_likely_draft_is_verified_and_an_unlikely_one_is_not() -> None:
    assert lengths([view(1, *powers(0.9))])[1] >= 8
    assert lengths([view(1, *powers(0.05))]) == {}


def test_the_more_sequences_share_a_step_the_likelier_a_token_has_to_be() -> None:
    alone = lengths([view(1, *powers(0.7))])[1]
    others = [view(i) for i in range(2, 17)]
    among = lengths([view(1, *powers(0.7)), *others]).get(1, 0)
    assert among < alone
    assert least_chance(COST, 16) > least_chance(COST, 1)


def test_drafts_of_one_step_have_lengths_of_their_own() -> None:
    found = lengths([view(1, *powers(0.95)), view(2, *powers(0.6)), view(3)])
    assert found[1] > found[2] > 0
    assert 3 not in found


def test_a_long_context_makes_rows_dearer_and_drafts_shorter() -> None:
    near = lengths([view(1, *powers(0.8))])[1]
    far = lengths([view(1, *powers(0.8), num_computed=8000)])[1]
    assert far < near


def test_nothing_is_verified_before_a_plain_step_was_measured() -> None:
    assert lengths([view(1, *powers(0.98))], StepCost()) == {}
    assert lengths([view(1, *powers(0.98))], replace(COST, draft_row_ms=0.0)) == {}


def test_what_a_step_with_drafts_takes_whatever_their_rows_is_worth_many_rows_or_none() -> None:
    """A dear beginning makes no row dearer: either drafts pay all of it, or there are none."""
    dear = replace(COST, draft_base_ms=3.0)
    assert lengths([view(1, 0.9)], dear) == {}
    few = lengths([view(1, *powers(0.95))])[1]
    assert lengths([view(1, *powers(0.95))], dear)[1] >= few
    assert lengths([view(1, *powers(0.95))], replace(COST, draft_base_ms=50.0)) == {}


def test_rows_and_blocks_that_are_left_are_the_limit() -> None:
    assert lengths([view(1, *powers(0.98))], max_rows=3) == {1: 3}
    assert lengths([view(1, *powers(0.98), room=5)], max_blocks=0) == {1: 5}
    assert lengths([view(1, *powers(0.98), room=0)], max_blocks=0) == {}
    both = lengths([view(1, *powers(0.98), room=4), view(2, *powers(0.97), room=9)], max_blocks=1)
    assert sorted(both.values())[0] in (4, 9)


def test_blocks_of_a_draft_are_those_behind_that_of_the_next_token() -> None:
    one = view(1, room=3)
    assert [one.blocks_for_draft(n) for n in (0, 3, 4, 19, 20)] == [0, 0, 1, 1, 2]


def best(views: list[RunningView], cost: StepCost) -> float:
    """Tokens per millisecond of the best lengths there are, by trying all."""
    found = []
    for each in itertools.product(*(range(len(v.chances) + 1) for v in views)):
        tokens = len(views) + sum(sum(v.chances[:n]) for v, n in zip(views, each, strict=True))
        rows = sum(n * draft_weight(v.num_computed) for v, n in zip(views, each, strict=True))
        found.append(tokens / (cost.decodes_ms(len(views)) + rows * cost.draft_row_ms))
    return max(found)


@pytest.mark.parametrize("seed", range(20))
def test_no_other_lengths_are_clearly_better(seed: int) -> None:
    chance = random.Random(seed)
    views = [
        view(i, *powers(chance.random(), 4), num_computed=chance.randrange(3000)) for i in range(4)
    ]
    chosen = lengths(views)
    tokens = 4 + sum(sum(v.chances[: chosen.get(v.key[0], 0)]) for v in views)
    rows = sum(chosen.get(v.key[0], 0) * draft_weight(v.num_computed) for v in views)
    rate = tokens / (COST.decodes_ms(4) + rows * COST.draft_row_ms)
    assert rate * LEAST_GAIN >= best(views, COST) * 0.99


def budget(**changes: object) -> Budget:
    given: dict[str, object] = {
        "max_batch_tokens": 64,
        "max_num_seqs": 8,
        "num_available": 10,
        "seats_taken": 1,
        "cost": COST,
    }
    return Budget(**(given | changes))  # type: ignore[arg-type]


def planned(views: list[RunningView], **changes: object) -> dict[SequenceKey, int]:
    return dict(schedule(views, [], [budget(**changes)]).draft_lengths)


def test_a_plan_of_decodes_alone_has_drafts() -> None:
    assert planned([view(1, *powers(0.9))]).keys() == {(1, 0)}
    assert planned([view(1)]) == {}


def test_there_are_none_beside_a_prompt_nor_where_somebody_is_preempted() -> None:
    prompt = view(2, is_decode=False, num_remaining=30)
    assert planned([view(1, *powers(0.9)), prompt]) == {}
    tight = [view(1, *powers(0.9), blocks_wanted=1), view(2, *powers(0.9), blocks_wanted=1)]
    plan = schedule(tight, [], [budget(num_available=1)])
    assert plan.preempted == ((2, 0),)
    assert plan.draft_lengths == {}


def test_nobody_loses_a_block_or_a_row_to_a_draft() -> None:
    views = [view(1, *powers(0.98), room=0, blocks_wanted=1), view(2, blocks_wanted=1)]
    plan = schedule(views, [], [budget(num_available=2)])
    assert plan.decodes == ((1, 0), (2, 0))
    assert plan.draft_lengths == {}
    few = schedule([view(1, *powers(0.98)), view(2)], [], [budget(max_batch_tokens=5)])
    assert (len(few.decodes), few.draft_lengths) == (2, {(1, 0): 3})


def test_what_guessing_takes_makes_drafts_shorter_and_none_of_them_in_the_end() -> None:
    free, dear = view(1, *powers(0.8)), view(1, *powers(0.8), guess_ms=0.2)
    assert lengths([free])[1] > lengths([dear])[1] > 0
    assert lengths([view(1, *powers(0.8), guess_ms=2.5)]) == {}
    mixed = lengths([dear, view(2, *powers(0.8))])
    assert mixed[2] > mixed[1]


def test_a_speedup_is_that_of_the_best_length() -> None:
    def gain(*chances: float, guess_ms: float = 0.0, num_decodes: int = 1) -> float:
        return speedup(chances, COST, num_decodes=num_decodes, context=0, guess_ms=guess_ms)

    assert gain() == gain(0.05) == 1.0
    assert gain(0.8) == pytest.approx(1.8 * 2.85 / 3.1)
    assert gain(0.8, 0.01) == gain(0.8)
    assert gain(0.8, guess_ms=1.0) < gain(0.8)
    assert gain(0.8, num_decodes=16) < gain(0.8)
    assert speedup([0.9], StepCost(), num_decodes=1, context=0) == 1.0
