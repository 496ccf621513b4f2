"""Random worlds with a head: as without, to the last token and block; what it counts as read is
what is known, and it never guesses over another's pairs."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from engine.process.fake_runner import read_tokens
from engine.step.engine import Engine
from tests.engine.step.engine_scenario import check, small_replica
from tests.engine.step.guessing import TickingClock
from tests.engine.step.head_guessing import (
    drafter_of,
    head_engine,
    head_of,
    num_misses,
    with_head,
)
from tests.engine.step.model_guessing import nobody
from tests.engine.step.test_engine_random import World, end_and_compare
from tests.engine.step.test_run_ahead_random import EOS, NUM_BLOCKS, Life, compare

ERRS = (0, 0, 1, 2, 3, 5)


def check_what_is_read(engine: Engine) -> int:
    """Pairs of every sequence that counts on them are those of its tokens. Returns how many do."""
    check(engine)
    drafter, head, num_checked = drafter_of(engine), head_of(engine), 0
    for request in engine.table:
        for sequence in request.sequences:
            kv = sequence.head_kv
            if kv is None or not kv.is_of(sequence.lease, drafter._block_size, era=drafter._era):
                continue
            if kv.num_seen > sequence.num_computed:
                continue  # it has begun again: the next state that comes is not its
            table = torch.tensor(kv.table(kv.num_read, drafter._block_size), dtype=torch.int64)
            found = read_tokens(head.kv, table, kv.num_read)
            assert found == sequence.token_ids[kv.first + 1 :][: kv.num_read]
            assert sum(map(len, kv.pending)) == kv.num_pending
            num_checked += 1
    return num_checked


@dataclass
class HeadWorld(World):
    """Handoffs, cancellations and preemption in a decode engine with a head."""

    def __post_init__(self) -> None:
        self.clock = TickingClock()
        super().__post_init__()

    def make_replicas(self) -> None:
        """Of eight blocks each, as in the plain world; the second one has the head."""
        self.every = self.chance.choice(ERRS)
        fails_at = frozenset([self.chance.randrange(60)] if self.chance.random() < 0.3 else [])
        drafting = with_head(small_replica(8), every=self.every, fails_at=fails_at)
        self.replicas = [small_replica(8), drafting]

    def options(self) -> dict[str, Any]:
        return {"make_drafter": nobody}


@pytest.mark.parametrize("seed", range(40))
def test_handoffs_to_an_engine_with_a_head_end_rightly_and_leak_no_block(seed: int) -> None:
    world = HeadWorld(random.Random(seed))
    for _ in range(12):
        world.live(10)
        check_what_is_read(world.decode)
    end_and_compare(world)
    assert head_of(world.decode).num_strange == 0
    if not world.every:
        assert num_misses(world.decode) == 0


class HeadLife(Life):
    """Requests of every kind that come, are cancelled and finished, in an engine that drafts."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.every = chance.choice(ERRS)
        self.num_checked = 0
        self.clock = TickingClock()
        self.engine = head_engine(
            small_replica(NUM_BLOCKS, EOS),
            every=self.every,
            clock=self.clock,
            fails_at=frozenset([chance.randrange(100)] if chance.random() < 0.3 else []),
            max_batch_tokens=chance.choice([4, 16, 40]),
            max_num_seqs=chance.choice([2, 4, 8]),
            prefix_cache=chance.random() < 0.7,
        )

    def step(self) -> None:
        """And the invariants after it."""
        super().step()
        self.num_checked += check_what_is_read(self.engine)


def lived(seed: int) -> HeadLife:
    life = HeadLife(random.Random(seed))
    life.live(150)
    life.end()
    return life


@pytest.mark.parametrize("seed", range(80))
def test_random_requests_get_the_tokens_of_an_engine_without_drafts(seed: int) -> None:
    life = lived(seed)
    for name, body in life.bodies.items():
        found = life.completions[name]
        assert found.ended is not None
        assert found.ended.error_code in ("", "cancelled", "deadline_exceeded")
        is_whole = not found.ended.error_code and name not in life.disturbed
        compare(body, found, is_whole=is_whole)
    assert head_of(life.engine).num_strange == 0
    if not life.every:
        assert num_misses(life.engine) == 0


def test_random_lives_keep_and_drop_drafts_and_preempt() -> None:
    tried = kept = preempted = checked = 0
    for seed in range(30):
        life = lived(seed)
        tallies = [done.ended for done in life.completions.values() if done.ended is not None]
        tried += sum(ended.draft_tokens for ended in tallies)
        kept += sum(ended.accepted_draft_tokens for ended in tallies)
        preempted += life.engine.load.now().num_preemptions
        checked += life.num_checked
    assert 100 < kept < tried - 60
    assert preempted > 0
    assert checked > 500
