"""Every row of a step is some rank's, once, and its blocks are that rank's own."""

from __future__ import annotations

import random

import pytest
import torch

from cluster.block_homes import BlockHomes
from engine.model.ragged_batch import RaggedBatch
from engine.runner.ranks.rank_step import StepHomes, part_of_rank, row_of_padding
from tests.engine.model.tiny_llama import BLOCK_SIZE, ragged_batch

HOMES = BlockHomes(num_homes=3, blocks_each=7)


def random_step(rng: random.Random) -> RaggedBatch:
    """Decodes, then chunks; of each sequence all blocks are of one rank."""
    num_decodes, num_chunks = rng.randint(0, 6), rng.randint(0, 4)
    lengths = [1] * num_decodes + [rng.randint(2, 9) for _ in range(num_chunks)] or [1]
    chunks = []
    for length in lengths:
        before = rng.randint(0, 3 * BLOCK_SIZE)
        ids = list(HOMES.ids_of(rng.randrange(HOMES.num_homes)))
        blocks = rng.sample(ids, -(-(before + length) // BLOCK_SIZE))
        chunks.append(([rng.randrange(61) for _ in range(length)], before, blocks))
    return ragged_batch(chunks)


def rows_of(batch: RaggedBatch, first_block: int = 0) -> list[tuple[int, ...]]:
    """Of each token: id, position, slot, blocks that it sees and tokens in them, by the numbers of
    all ranks."""
    lengths = batch.query_starts.diff().tolist()
    seqs = [seq for seq, length in enumerate(lengths) for _ in range(length)]
    found = []
    for row, seq in enumerate(seqs):
        context = int(batch.context_lens[seq])
        table = batch.block_tables[seq, : -(-context // BLOCK_SIZE)] + first_block
        slot = int(batch.slots[row]) + first_block * BLOCK_SIZE
        token, position = int(batch.token_ids[row]), int(batch.positions[row])
        found.append((token, position, slot, context, *table.tolist()))
    return found


@pytest.mark.parametrize("seed", range(30))
def test_the_parts_of_all_ranks_are_the_step(seed: int) -> None:
    batch = random_step(random.Random(seed))
    step = StepHomes.of(batch, HOMES)
    made: list[tuple[int, ...]] = []
    num_decodes = 0
    for rank in range(HOMES.num_homes):
        own = HOMES.ids_of(rank)
        part = part_of_rank(batch, step, own, rank=rank, block_size=BLOCK_SIZE)
        if part is None:
            continue
        assert part.block_tables.min() >= 0
        assert part.block_tables.max() < HOMES.blocks_each
        lengths = part.query_starts.diff()
        assert lengths[: part.num_decodes].tolist() == [1] * part.num_decodes
        assert part.max_query_len == lengths.max()
        assert part.max_context_len == part.context_lens.max()
        rows = rows_of(part, own.start)
        made += [rows[row] for row in part.logit_rows.tolist()]
        num_decodes += part.num_decodes
    places = step.places_of_logits()
    assert [made[place] for place in places.tolist()] == rows_of(batch)
    assert len(made) == len(batch.token_ids)
    assert num_decodes == batch.num_decodes


def test_logits_come_back_in_the_order_of_the_step() -> None:
    blocks = [7, 0, 14, 1]
    batch = ragged_batch([([at], 0, [block]) for at, block in enumerate(blocks)])
    step = StepHomes.of(batch, HOMES)
    assert step.num_logits(3) == [2, 1, 1]
    by_rank = torch.tensor([1, 3, 0, 2])  # of ranks 0, 0, 1, 2
    assert by_rank[step.places_of_logits()].tolist() == [0, 1, 2, 3]


def test_a_rank_without_a_sequence_has_a_row_that_nobody_reads() -> None:
    batch = ragged_batch([([5], 0, [8])])
    step = StepHomes.of(batch, HOMES)
    assert part_of_rank(batch, step, HOMES.ids_of(2), rank=2, block_size=BLOCK_SIZE) is None
    padding = row_of_padding(HOMES.blocks_each, block_size=BLOCK_SIZE)
    assert padding.slots.tolist() == [HOMES.blocks_each * BLOCK_SIZE]
    assert padding.block_tables.tolist() == [[HOMES.blocks_each]]
    assert len(padding.logit_rows) == 0
