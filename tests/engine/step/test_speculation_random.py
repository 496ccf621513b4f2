"""Random worlds with drafts: as without, to the last token and block."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import structs

from engine.contract.commands import Submit
from engine.offline.queue import Completion, collect
from engine.step.drafters.lookup import prompt_lookup
from tests.engine.step.engine_scenario import check, expected_tokens, small_engine, small_replica
from tests.engine.step.guessing import TickingClock, oracles
from tests.engine.step.test_engine_random import World, end_and_compare
from tests.engine.step.test_run_ahead_random import (
    EOS,
    NUM_BLOCKS,
    Life,
    alone,
    compare,
    random_body,
)


@dataclass
class GuessingWorld(World):
    """Handoffs, cancellations and preemption in a decode engine that drafts, now right, now not."""

    def __post_init__(self) -> None:
        self.clock = TickingClock()
        super().__post_init__()

    def options(self) -> dict[str, Any]:
        mistakes = self.chance.choice([0.0, 0.1, 0.4, 1.0])
        return {"make_guesser": oracles(mistakes, self.chance.randrange(1000))}

    def submit(self) -> None:
        """What it expects of its first choice travels along."""
        apply = self.decode.apply

        def with_prediction(command: Any) -> None:
            if isinstance(command, Submit):
                body = command.request
                command = Submit(structs.replace(body, prediction=expected_tokens(body)))
            apply(command)

        self.decode.apply = with_prediction  # type: ignore[method-assign]
        super().submit()
        self.decode.apply = apply  # type: ignore[method-assign]


@pytest.mark.parametrize("seed", range(40))
def test_handoffs_to_an_engine_that_drafts_end_rightly_and_leak_no_block(seed: int) -> None:
    world = GuessingWorld(random.Random(seed))
    world.live(120)
    end_and_compare(world)


class GuessingLife(Life):
    """Requests of every kind that come, are cancelled and finished, in an engine that drafts."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.engine = small_engine(
            small_replica(NUM_BLOCKS, EOS),
            clock=TickingClock(),
            make_guesser=oracles(chance.choice([0.0, 0.2, 0.6]), chance.randrange(1000)),
            max_batch_tokens=chance.choice([4, 16, 40]),
            max_num_seqs=chance.choice([2, 4, 8]),
            prefix_cache=chance.random() < 0.7,
        )

    def submit(self) -> None:
        """Two of three expect the right answer."""
        body = random_body(self.chance, str(len(self.bodies)))
        if self.chance.random() < 0.7:
            body = structs.replace(body, prediction=alone(body).token_ids())
        self.bodies[body.request_id] = body
        self.completions[body.request_id] = Completion()
        self.engine.apply(Submit(body))
        check(self.engine)


def lived(seed: int) -> GuessingLife:
    life = GuessingLife(random.Random(seed))
    life.live(150)
    life.end()
    return life


@pytest.mark.parametrize("seed", range(40))
def test_random_requests_get_the_tokens_of_an_engine_without_drafts(seed: int) -> None:
    life = lived(seed)
    for name, body in life.bodies.items():
        found = life.completions[name]
        assert found.ended is not None
        assert found.ended.error_code in ("", "cancelled", "deadline_exceeded")
        is_whole = not found.ended.error_code and name not in life.disturbed
        compare(body, found, is_whole=is_whole)


def test_random_lives_keep_and_drop_drafts_and_preempt() -> None:
    tried = kept = preempted = 0
    for seed in range(12):
        life = lived(seed)
        tallies = [done.ended for done in life.completions.values() if done.ended is not None]
        tried += sum(ended.draft_tokens for ended in tallies)
        kept += sum(ended.accepted_draft_tokens for ended in tallies)
        preempted += life.engine.load.now().num_preemptions
    assert 100 < kept < tried - 100
    assert preempted > 0


@pytest.mark.parametrize("seed", range(10))
def test_prompt_lookup_gives_the_tokens_of_an_engine_without_drafts(seed: int) -> None:
    """Over seven kinds of tokens everything was there before, and hardly anything follows again."""
    chance = random.Random(seed)
    bodies = [random_body(chance, str(i)) for i in range(6)]
    bodies = [structs.replace(body, timeout_ms=1e6) for body in bodies]
    engine = small_engine(
        small_replica(NUM_BLOCKS, EOS),
        clock=TickingClock(),
        make_guesser=prompt_lookup(),
        max_batch_tokens=40,
        max_num_seqs=4,
    )
    completions = {body.request_id: Completion() for body in bodies}
    for body in bodies:
        engine.apply(Submit(body))
    while not all(done.ended for done in completions.values()):
        collect(engine.step(), completions)
        check(engine)
    for body in bodies:
        compare(body, completions[body.request_id], is_whole=True)
