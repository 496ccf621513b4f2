"""What of a sequence a draft model has read, and what of its pool it knows."""

from __future__ import annotations

import pytest

from cluster.block_homes import BlockHomes
from engine.memory.block_pool import BlockPool, Hold
from engine.memory.lease import BlockLease, lease_blocks
from engine.memory.prefix_cache import PrefixCache
from engine.step.drafting.draft_kv import DraftKv
from engine.step.drafting.kept_rates import OwnKeptRates, SharedKeptRates
from engine.step.drafting.shared_draft_kv import SharedDraftKv

SIZE = 2


@pytest.fixture
def lease() -> BlockLease:
    homes = BlockHomes(1, 16)
    pool = BlockPool(homes, PrefixCache(homes, enabled=False))
    made = lease_blocks(pool, "a", Hold.ACTIVE, home=0, num_new=6)
    assert made is not None
    return made


def kv_of(lease: BlockLease, num_read: int) -> DraftKv:
    kv = DraftKv(lease, 0, OwnKeptRates(SharedKeptRates()), era=0)
    kv.read(num_read, SIZE)
    return kv


@pytest.mark.parametrize(
    ("came", "num_read"),
    [
        ([7], 4),  # another token came: nothing guessed was right
        ([1], 4),  # the first was, and is the last token known: its logits are still wanted
        ([1, 7], 5),
        ([1, 2, 7], 6),
        ([1, 2, 3, 7], 6),  # the last guess has no KV: nobody has read it
        ([], 3),  # the step failed: the last token is read once more
    ],
)
def test_guesses_that_were_right_are_read_thereby(
    came: list[int], num_read: int, lease: BlockLease
) -> None:
    known = [5, 6, 5, 6]
    kv = kv_of(lease, len(known))
    kv.guessed([1, 2, 3])
    kv.settle([*known, *came], SIZE)
    assert kv.num_read == num_read
    kv.settle([*known, *came, 1, 2, 3], SIZE)  # they count once
    assert kv.num_read == num_read


def test_what_was_read_is_in_doubt_when_blocks_change(lease: BlockLease) -> None:
    kv = kv_of(lease, 4)
    assert kv.is_of(lease, SIZE, era=0)
    assert not kv.is_of(lease, SIZE, era=1)
    assert not kv.is_of(None, SIZE, era=0)
    other = lease.fork("b")
    assert not kv.is_of(other, SIZE, era=0)
    lease.own(1)  # shared: a copy takes its place
    assert not kv.is_of(lease, SIZE, era=0)


def test_blocks_are_known_from_their_last_token_until_they_are_written_again() -> None:
    shared, names = SharedDraftKv(SIZE), [b"a", b"b", b"c"]
    blocks = [4, 9, 2]
    shared.begin(blocks, 0, 5)
    shared.done(blocks, names, 0, 5)
    assert shared.prefix_tokens(blocks, names) == 4  # the third is not full
    assert shared.prefix_tokens(blocks, [b"a", b"x"]) == 2
    assert shared.prefix_tokens([9, 4], names) == 0
    shared.begin([9], 0, 1)
    assert shared.prefix_tokens(blocks, names) == 2
    assert len(shared) == 1
    shared.doubt_all()
    assert shared.prefix_tokens(blocks, names) == 0
    assert shared.era == 1
