"""Random worlds with a draft model: as without, to the last token and block, and what it counts as
read is what is known."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from engine.process.fake_runner import FakeRunner, read_tokens
from engine.step.engine import Engine
from tests.engine.runner.lazy_drawer import LazyDrawer
from tests.engine.runner.lazy_runner import lazy_replica
from tests.engine.step.engine_scenario import check, small_replica
from tests.engine.step.guessing import TickingClock
from tests.engine.step.model_guessing import (
    drafter_of,
    model_engine,
    nobody,
    num_misses,
    with_draft,
)
from tests.engine.step.test_engine_random import World, end_and_compare
from tests.engine.step.test_run_ahead_random import EOS, NUM_BLOCKS, Life, compare, num_ahead

ERRS = (0, 0, 1, 2, 3, 5)


def check_what_is_read(engine: Engine) -> int:
    """Draft KV of every sequence that counts on it is that of its tokens. Returns how many do."""
    check(engine)
    drafter, num_checked = drafter_of(engine), 0
    runner, era = drafter._model.runner, drafter._kv.era
    if isinstance(runner, LazyDrawer):
        runner.catch_up(None)
        runner = runner._runner
    assert isinstance(runner, FakeRunner)
    for request in engine.table:
        for sequence in request.sequences:
            kv = sequence.draft_kv
            if kv is None or not kv.is_of(sequence.lease, drafter._block_size, era=era):
                continue
            blocks = sequence.blocks.block_ids
            table = torch.tensor(blocks, dtype=torch.int64)
            found = read_tokens(runner._kv, table, kv.num_read)
            assert found == sequence.token_ids[: kv.num_read]
            num_checked += 1
    return num_checked


@dataclass
class DraftingWorld(World):
    """Handoffs, cancellations and preemption in a decode engine with a draft model."""

    def __post_init__(self) -> None:
        self.clock = TickingClock()
        super().__post_init__()

    def make_replicas(self) -> None:
        """Of eight blocks each, as in the plain world; the second one has the draft model."""
        self.every = self.chance.choice(ERRS)
        fails_at = frozenset([self.chance.randrange(60)] if self.chance.random() < 0.3 else [])
        drafting = with_draft(small_replica(8), every=self.every, fails_at=fails_at)
        self.replicas = [small_replica(8), drafting]

    def options(self) -> dict[str, Any]:
        return {"make_guesser": nobody}


@pytest.mark.parametrize("seed", range(40))
def test_handoffs_to_an_engine_with_a_draft_model_end_rightly_and_leak_no_block(seed: int) -> None:
    world = DraftingWorld(random.Random(seed))
    for _ in range(12):
        world.live(10)
        check_what_is_read(world.decode)
    end_and_compare(world)
    if not world.every:
        assert num_misses(world.decode) == 0


class DraftingLife(Life):
    """Requests of every kind that come, are cancelled and finished, in an engine that drafts."""

    is_late = False
    """Target and draft are on devices that do nothing before somebody waits."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        target = small_replica(NUM_BLOCKS, EOS)
        if self.is_late:
            target, self.runner = lazy_replica(NUM_BLOCKS, EOS)
        self.every = chance.choice(ERRS)
        self.num_checked = 0
        self.clock = TickingClock()
        self.engine = model_engine(
            target,
            every=self.every,
            is_late=self.is_late,
            clock=self.clock,
            fails_at=frozenset([chance.randrange(100)] if chance.random() < 0.3 else []),
            max_context_tokens=chance.choice([8, 1000]),
            max_batch_tokens=chance.choice([4, 16, 40]),
            max_num_seqs=chance.choice([2, 4, 8]),
            prefix_cache=chance.random() < 0.7,
        )

    def step(self) -> None:
        """And the invariants after it."""
        super().step()
        self.num_checked += check_what_is_read(self.engine)


class LateDraftingLife(DraftingLife):
    """The same, where steps run ahead and guesses are launched."""

    is_late = True


def lived(seed: int, kind: type[DraftingLife] = DraftingLife) -> DraftingLife:
    life = kind(random.Random(seed))
    life.live(150)
    life.end()
    return life


@pytest.mark.parametrize("seed", [*range(60), 138, 227, 250, 293])
def test_random_requests_get_the_tokens_of_an_engine_without_drafts(seed: int) -> None:
    check_lived(lived(seed))


@pytest.mark.parametrize("seed", range(30))
def test_so_do_those_on_late_devices(seed: int) -> None:
    check_lived(lived(seed, LateDraftingLife))


def check_lived(life: DraftingLife) -> None:
    for name, body in life.bodies.items():
        found = life.completions[name]
        assert found.ended is not None
        assert found.ended.error_code in ("", "cancelled", "deadline_exceeded")
        is_whole = not found.ended.error_code and name not in life.disturbed
        compare(body, found, is_whole=is_whole)
    if not life.every:
        assert num_misses(life.engine) == 0


def test_random_lives_on_late_devices_keep_drafts_and_run_ahead() -> None:
    kept = ahead = 0
    for seed in range(8):
        life = lived(seed, LateDraftingLife)
        ends = [done.ended for done in life.completions.values() if done.ended is not None]
        kept += sum(ended.accepted_draft_tokens for ended in ends)
        ahead += num_ahead(life.runner)
    assert kept > 20
    assert ahead > 20


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
