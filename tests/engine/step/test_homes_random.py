"""Random worlds whose blocks have homes: a solo run's tokens, and nothing between two homes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from cluster.block_homes import BlockHomes
from engine.step.engine import Engine
from tests.engine.step.homes_scenario import homes_replica
from tests.engine.step.test_engine_random import World, end_and_compare


@dataclass
class HomesWorld(World):
    """A prefill and a decode engine with unequal numbers of homes, of six blocks each."""

    def make_replicas(self) -> None:
        numbers = self.chance.sample([1, 2, 3], 2)
        made = [homes_replica(BlockHomes(number, 6)) for number in numbers]
        self.replicas = [replica for replica, _, _ in made]
        self._pools = [kv for _, _, kv in made]

    def options(self) -> dict[str, Any]:
        """Of which each home has an even part."""
        return {"max_batch_tokens": self.chance.choice([6, 9, 24]), "max_num_seqs": 12}

    def pools(self) -> list[torch.Tensor]:
        """By the ids of all homes."""
        return self._pools


@pytest.mark.parametrize("seed", range(40))
def test_random_interleavings_at_several_homes_end_every_request_rightly(seed: int) -> None:
    world = HomesWorld(random.Random(seed))
    for _ in range(12):
        world.live(10)
        for engine in (world.prefill, world.decode):
            _assert_conserved(engine)
    end_and_compare(world)


def test_the_random_worlds_preempt_and_copy_at_full_homes_beside_free_ones() -> None:
    """Or the test above would show little."""
    preempted = uneven = 0
    for seed in range(4):
        world = HomesWorld(random.Random(seed))
        for _ in range(120):
            world.live(1)
            pool = world.decode.placement.pool
            left = [pool.available_at(home) for home in range(pool.homes.num_homes)]
            uneven += min(left) == 0 and max(left) > 1
        preempted += world.decode.load.now().num_preemptions
    assert preempted >= 2
    assert uneven >= 5


def _assert_conserved(engine: Engine) -> None:
    """Of each home's blocks every one is held by a lease there, or unused there."""
    pool = engine.placement.pool
    for home in range(pool.homes.num_homes):
        held = {b for lease in pool.leases for b in lease.block_ids if lease.home == home}
        assert held <= set(pool.homes.ids_of(home))
        assert len(held) + pool.available_at(home) == pool.homes.blocks_each
