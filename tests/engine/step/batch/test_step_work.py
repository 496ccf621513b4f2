"""What a step computes, by the homes of its sequences."""

from __future__ import annotations

from collections import Counter

from cluster.block_homes import BlockHomes
from engine.memory.block_pool import BlockPool, Hold
from engine.memory.lease import lease_blocks
from engine.memory.prefix_cache import PrefixCache
from engine.step.batch.step_work import Span, StepWork
from engine.step.planning.plan import Chunk, HomeShare
from engine.step.requests.lifecycle import Life
from engine.step.requests.sequence import Sequence
from tests.engine.step.engine_scenario import ROOT

HOMES = BlockHomes(2, 8)


def span(pool: BlockPool, arrival: int, num_tokens: int, *, home: int) -> Span:
    """The first tokens of a prompt of nine."""
    life = Life(lambda: 0.0, Counter())
    sequence = Sequence("r", [1] * 9, cache_root=ROOT, arrival=arrival, life=life)
    sequence.lease = lease_blocks(pool, "r", Hold.ACTIVE, home=home, num_new=2)
    return Span(sequence, num_tokens)


def test_the_slowest_share_is_of_the_home_with_the_most_rows() -> None:
    pool = BlockPool(HOMES, PrefixCache(HOMES))
    decodes = [span(pool, arrival, 1, home=arrival % 2) for arrival in range(3)]
    chunks = [span(pool, 3, 4, home=1), span(pool, 4, 2, home=0)]
    work = StepWork(spans=[*decodes, *chunks], num_decodes=3, copies=[])
    assert work.slowest_share() == HomeShare(1, (Chunk((3, 0), 4),))
    assert StepWork(spans=decodes, num_decodes=3, copies=[]).slowest_share() == HomeShare(2, ())
    assert StepWork(spans=[], num_decodes=0, copies=[]).slowest_share() == HomeShare(0, ())
