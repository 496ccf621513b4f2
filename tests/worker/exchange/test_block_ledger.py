"""What is known of prompt blocks that come from elsewhere."""

import random

import pytest

from cluster.block_span import BlockSpan
from cluster.errors import TransferFailed
from worker.exchange.block_ledger import BlockLedger


def run_of(first_index: int, count: int, mark: int = 0) -> BlockSpan:
    ids = [100 * mark + first_index + i for i in range(count)]
    return BlockSpan(first_index, ids, [7] * count, b"".join(bytes([i % 256]) * 8 for i in ids))


def test_offered_blocks_are_read_once_and_only_where_they_are_missing():
    ledger = BlockLedger(num_blocks=6, first_block=2)
    ledger.offer(run_of(0, 6))
    ((read, _),) = ledger.take_reads()
    assert (read.first_index, read.block_ids) == (2, [2, 3, 4, 5])
    assert read.digests == b"".join(bytes([i]) * 8 for i in (2, 3, 4, 5))
    assert ledger.take_reads() == []
    ledger.answer(2, 4)
    assert ledger.is_complete
    assert ledger.is_quiet


def test_after_a_failure_the_next_source_fills_only_the_holes():
    ledger = BlockLedger(num_blocks=6, first_block=0)
    ledger.offer(run_of(0, 3))
    ledger.take_reads()
    ledger.offer(run_of(3, 2))
    ledger.take_reads()
    ledger.answer(0, 1)
    ledger.answer(3, 2)
    ledger.forget_offers()
    assert ledger.first_unverified == 1
    ledger.offer(run_of(1, 5, mark=1))
    assert [read.span.block_ids for read in ledger.take_reads()] == [[101, 102], [105]]


@pytest.mark.parametrize(
    "run",
    [
        BlockSpan(0, [1, 2], [7], b""),
        BlockSpan(0, [1, 2], [7, 7], b"123"),
        BlockSpan(3, [1, 2], [7, 7], bytes(16)),
    ],
    ids=["generations", "digests", "beyond-the-prompt"],
)
def test_an_announcement_that_makes_no_sense_is_refused(run):
    with pytest.raises(TransferFailed):
        BlockLedger(num_blocks=4, first_block=0).offer(run)


@pytest.mark.parametrize("seed", range(30))
def test_no_block_is_ever_read_twice_at_a_time_or_after_it_is_verified(seed):
    chance = random.Random(seed)
    num_blocks = chance.randint(1, 8)
    ledger = BlockLedger(num_blocks=num_blocks, first_block=chance.randint(0, num_blocks))
    verified = set(range(ledger.first_unverified))
    reading: dict[int, set[int]] = {}
    for step in range(200):
        action = chance.random()
        if action < 0.4:
            first = chance.randrange(num_blocks)
            ledger.offer(run_of(first, chance.randint(0, num_blocks - first), mark=step))
        elif action < 0.5:
            ledger.forget_offers()
        elif reading:
            first = chance.choice(list(reading))
            blocks = reading.pop(first)
            good = chance.randint(0, len(blocks))
            ledger.answer(first, good)
            verified |= set(sorted(blocks)[:good])
        for read, _ in ledger.take_reads():
            blocks = set(range(read.first_index, read.first_index + len(read.block_ids)))
            assert not blocks & verified
            assert all(not blocks & others for others in reading.values())
            reading[read.first_index] = blocks
        missing = [i for i in range(num_blocks) if i not in verified]
        assert ledger.first_unverified == (missing[0] if missing else num_blocks)
        assert ledger.is_complete == (not missing)
        assert ledger.is_quiet == (not reading)
