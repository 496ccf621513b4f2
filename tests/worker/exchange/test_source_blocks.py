"""Blocks of a prefill worker, and which of ours they make."""

from __future__ import annotations

import random

import pytest

from cluster.block_span import BlockSpan
from worker.exchange.block_ledger import BlockLedger
from worker.exchange.source_blocks import BlockSizes


def test_equal_blocks_are_asked_for_as_they_are() -> None:
    sizes = BlockSizes(16, 16)
    blocks = sizes.of_prompt(num_tokens=100, num_blocks=7)
    assert sizes.digest_tokens == 0 and blocks.is_same and blocks.num_blocks == 7
    assert blocks.first_for(3) == 3 and blocks.making(3) == blocks.made_with(3) == range(3, 4)


@pytest.mark.parametrize(("ours", "theirs", "tokens"), [(16, 64, 16), (64, 16, 16), (24, 16, 8)])
def test_digests_are_asked_for_so_that_each_of_our_blocks_can_be_checked(
    ours: int, theirs: int, tokens: int
) -> None:
    assert BlockSizes(ours, theirs).digest_tokens == tokens


def test_the_first_block_that_is_asked_for_has_the_first_token_that_is_missing() -> None:
    ours_small = BlockSizes(16, 64).of_prompt(num_tokens=200, num_blocks=13)
    assert [ours_small.first_for(index) for index in (0, 3, 4, 12, 13)] == [0, 0, 1, 3, 3]
    ours_large = BlockSizes(64, 16).of_prompt(num_tokens=200, num_blocks=4)
    assert [ours_large.first_for(index) for index in (0, 1, 3, 4)] == [0, 4, 12, 13]
    assert ours_large.making(3) == range(12, 13)  # eight tokens of the prompt


@pytest.mark.parametrize("seed", range(60))
def test_of_whatever_sizes_each_block_is_read_once_and_from_all_that_it_is_made_of(
    seed: int,
) -> None:
    chance = random.Random(seed)
    ours, theirs = chance.choice([(16, 64), (64, 16), (24, 16), (16, 24), (8, 8)])
    num_tokens = chance.randint(1, 300)
    num_blocks = -(-num_tokens // ours)
    blocks = BlockSizes(ours, theirs).of_prompt(num_tokens=num_tokens, num_blocks=num_blocks)
    first = chance.randint(0, num_blocks)
    ledger = BlockLedger(num_blocks=num_blocks, first_block=first)
    ledger.begin_source(blocks)
    at, read = blocks.first_for(first), list[int]()
    while at < blocks.num_blocks:
        count = chance.randint(1, blocks.num_blocks - at)
        ids = list(range(at, at + count))
        ledger.offer(BlockSpan(at, ids, [1] * count, bytes(8 * count)))
        at += count
        for span, into in ledger.take_reads():
            run = into or span.run
            tokens = range(run.first_index * ours, min(run.end_index * ours, num_tokens))
            assert span.block_ids == list(range(span.first_index, span.end_index))
            assert span.first_index * theirs <= tokens.start
            assert min(span.end_index * theirs, num_tokens) >= tokens.stop
            read += range(run.first_index, run.end_index)
            ledger.answer(run.first_index, run.num_blocks)
    assert read == list(range(first, num_blocks)) and ledger.is_complete
