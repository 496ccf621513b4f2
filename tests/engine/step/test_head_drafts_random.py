"""Random worlds with a head: as without, to the last token and block; what it counts as read is
what is known, and it never guesses over another's pairs."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from engine.process.fake_runner import read_tokens
from engine.step.drafting.head_kv import HeadKv
from engine.step.engine import Engine
from engine.step.requests.sequence import Sequence
from tests.engine.step.engine_scenario import check, small_replica
from tests.engine.step.guessing import TickingClock
from tests.engine.step.head_guessing import (
    FakeHead,
    Ledger,
    drafter_of,
    head_engine,
    head_of,
    num_misses,
    states_read,
    with_head,
    with_head_in_blocks,
)
from tests.engine.step.model_guessing import nobody
from tests.engine.step.test_engine_random import World, end_and_compare
from tests.engine.step.test_run_ahead_random import EOS, NUM_BLOCKS, Life, compare

ERRS = (0, 0, 1, 2, 3, 5)


def check_what_is_read(engine: Engine) -> tuple[int, int]:
    """Pairs of every sequence that counts on them are those of its tokens, and of their states, as
    far as any were seen. Returns how many do, and how many have all pairs."""
    check(engine)
    drafter, head, num_checked, num_whole = drafter_of(engine), head_of(engine), 0, 0
    for request in engine.table:
        for sequence in request.sequences:
            kv = sequence.head_kv
            if kv is None or not kv.is_of(sequence.lease, era=drafter._reader.era):
                continue
            if kv.num_seen > sequence.num_computed:
                continue  # it has begun again: the next state that comes is not its
            table = kv.table(kv.num_read)
            num_pairs = kv.num_read - kv.first
            found = read_tokens(head.kv, torch.tensor(table, dtype=torch.int64), num_pairs)
            assert found == sequence.token_ids[kv.first :][:num_pairs]
            assert len(kv.fused) + sum(map(len, kv.pending)) == kv.num_pending
            check_states(head, sequence, kv)
            num_checked, num_whole = num_checked + 1, num_whole + kv.is_whole
    return num_checked, num_whole


def check_states(head: FakeHead, sequence: Sequence, kv: HeadKv) -> None:
    if not kv.is_whole:
        return
    ids = sequence.token_ids
    found = states_read(head, kv.table(kv.num_read), kv.num_read)
    assert [head.seen(number) for number in found] == [tuple(ids[:i]) for i in range(kv.num_read)]


@dataclass
class HeadWorld(World):
    """Handoffs, cancellations and preemption in a decode engine with a head."""

    in_blocks: bool = False
    num_checked: int = 0
    num_whole: int = 0

    def __post_init__(self) -> None:
        self.clock = TickingClock()
        super().__post_init__()

    def make_replicas(self) -> None:
        """Of eight blocks each, as in the plain world; the second one has the head, and the first
        one as well where it hands over what it has read."""
        self.every = self.chance.choice(ERRS)
        fails_at = frozenset([self.chance.randrange(60)] if self.chance.random() < 0.3 else [])
        errs: dict[str, Any] = {"every": self.every, "fails_at": fails_at}
        if self.in_blocks:
            ledger = Ledger()
            first = with_head_in_blocks(8, ledger)
            self.replicas = [first, with_head_in_blocks(8, ledger, **errs)]
        else:
            self.replicas = [small_replica(8), with_head(small_replica(8), **errs)]

    def options(self) -> dict[str, Any]:
        return {"make_guesser": nobody}

    def live_checked(self) -> None:
        for _ in range(12):
            self.live(10)
            num_checked, num_whole = check_what_is_read(self.decode)
            self.num_checked += num_checked
            self.num_whole += num_whole
        end_and_compare(self)


@pytest.mark.parametrize("in_blocks", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_handoffs_to_an_engine_with_a_head_end_rightly_and_leak_no_block(
    seed: int, in_blocks: bool
) -> None:
    world = HeadWorld(random.Random(seed), in_blocks=in_blocks)
    world.live_checked()
    assert head_of(world.decode).num_strange == 0
    if not world.every:
        assert num_misses(world.decode) == 0


def test_what_is_handed_over_or_cached_is_gone_on_with_from_the_texts_beginning() -> None:
    checked, whole = [0, 0], [0, 0]
    for seed in range(30):
        for in_blocks in (False, True):
            world = HeadWorld(random.Random(seed), in_blocks=in_blocks)
            world.live_checked()
            checked[in_blocks] += world.num_checked
            whole[in_blocks] += world.num_whole
    assert whole[False] < 0.7 * checked[False]
    assert whole[True] > 0.9 * checked[True] > 50


class HeadLife(Life):
    """Requests of every kind that come, are cancelled and finished, in an engine that drafts."""

    def __init__(self, chance: random.Random, *, in_blocks: bool) -> None:
        super().__init__(chance)
        self.every = chance.choice(ERRS)
        self.num_checked = self.num_whole = 0
        self.clock = TickingClock()
        errs: dict[str, Any] = {
            "every": self.every,
            "fails_at": frozenset([chance.randrange(100)] if chance.random() < 0.3 else []),
        }
        target = small_replica(NUM_BLOCKS, EOS)
        if in_blocks:
            target = with_head_in_blocks(NUM_BLOCKS, Ledger(), eos_token_ids=EOS, **errs)
        self.engine = head_engine(
            target,
            **errs,
            clock=self.clock,
            max_batch_tokens=chance.choice([4, 16, 40]),
            max_num_seqs=chance.choice([2, 4, 8]),
            prefix_cache=chance.random() < 0.7,
        )

    def step(self) -> None:
        """And the invariants after it."""
        super().step()
        num_checked, num_whole = check_what_is_read(self.engine)
        self.num_checked += num_checked
        self.num_whole += num_whole


def lived(seed: int, *, in_blocks: bool) -> HeadLife:
    life = HeadLife(random.Random(seed), in_blocks=in_blocks)
    life.live(150)
    life.end()
    return life


@pytest.mark.parametrize("in_blocks", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_random_requests_get_the_tokens_of_an_engine_without_drafts(
    seed: int, in_blocks: bool
) -> None:
    life = lived(seed, in_blocks=in_blocks)
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
    tried = kept = preempted = checked = whole = 0
    for seed in range(30):
        life = lived(seed, in_blocks=True)
        tallies = [done.ended for done in life.completions.values() if done.ended is not None]
        tried += sum(ended.draft_tokens for ended in tallies)
        kept += sum(ended.accepted_draft_tokens for ended in tallies)
        preempted += life.engine.load.now().num_preemptions
        checked, whole = checked + life.num_checked, whole + life.num_whole
    assert 100 < kept < tried - 60
    assert preempted > 0
    assert checked > 500
    assert whole > 0.7 * checked  # the others begin behind a head that has failed, or that rested
