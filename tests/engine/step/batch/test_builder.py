"""The tensors of a step, against a drawn example."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.model.ragged_batch import RaggedBatch
from engine.step.batch.builder import BatchBuilder, Span, build_batch
from engine.step.requests.adapter_use import AdapterUse
from engine.step.requests.lifecycle import Life
from engine.step.requests.sequence import Sequence
from tests.engine.step.engine_scenario import ROOT, VirtualClock

CPU = torch.device("cpu")


def placed(token_ids: list[int], num_computed: int, block_ids: list[int]) -> Sequence:
    life = Life(VirtualClock(), Counter())
    sequence = Sequence("r", token_ids, cache_root=ROOT, arrival=1, life=life)
    sequence.num_computed = num_computed
    lease: Any = SimpleNamespace(block_ids=array("i", block_ids))
    sequence.lease = lease
    return sequence


def in_slot(slot: int) -> AdapterUse:
    use = AdapterUse("d", lambda use: None)
    use.slot = slot
    return use


def test_rows_have_the_slots_of_their_sequences_adapters() -> None:
    spans = [
        Span(placed([10, 11, 12], 2, [4, 6]), 1),
        Span(placed([20, 21, 22, 23, 24], 1, [7, 1, 3]), 2),
    ]
    assert build_batch(spans, 1, block_size=2, device=CPU).adapters is None
    spans[1].sequence.adapter = in_slot(3)
    slots = build_batch(spans, 1, block_size=2, device=CPU).adapters
    assert slots is not None and slots.dtype is torch.int32
    assert slots.tolist() == [0, 3, 3]


def test_a_row_whose_adapter_has_no_slot_is_never_computed_by_the_model_alone() -> None:
    builder = BatchBuilder(2, CPU)
    decode = Span(placed([10, 11, 12], 2, [4, 6]), 1)
    builder.build([decode], 1)  # the next one is written in place
    decode.sequence.adapter = AdapterUse("d", lambda use: None)
    with pytest.raises(AssertionError, match="computed without its adapter"):
        builder.build([decode], 1)
    with pytest.raises(AssertionError, match="computed without its adapter"):
        build_batch([decode], 1, block_size=2, device=CPU)


def test_sequences_stand_side_by_side_without_padding() -> None:
    spans = [
        Span(placed([10, 11, 12], 2, [4, 6]), 1),  # a decode
        Span(placed([20, 21, 22, 23, 24], 1, [7, 1, 3]), 2),  # the middle of a prompt
        Span(placed([30, 31, 32, 33], 0, [2, 5]), 4),  # a whole prompt
    ]
    batch = build_batch(spans, 1, block_size=2, device=torch.device("cpu"))
    assert batch.token_ids.tolist() == [12, 21, 22, 30, 31, 32, 33]
    assert batch.positions.tolist() == [2, 1, 2, 0, 1, 2, 3]
    assert batch.slots.tolist() == [12, 15, 2, 4, 5, 10, 11]
    assert batch.query_starts.tolist() == [0, 1, 3, 7]
    assert batch.context_lens.tolist() == [3, 3, 4]
    assert batch.block_tables.tolist() == [[4, 6], [7, 1], [2, 5]]
    assert batch.logit_rows.tolist() == [0, 6]
    assert (batch.num_decodes, batch.max_query_len, batch.max_context_len) == (1, 4, 4)
    dtypes = [batch.slots.dtype, batch.query_starts.dtype, batch.block_tables.dtype]
    assert dtypes == [torch.int64, torch.int32, torch.int32]


def test_steps_that_only_decode_equal_batches_built_anew() -> None:
    """Sequences come, grow, copy their last block, change places and go; some steps are mixed."""
    rng, block_size = random.Random(5), 4
    builder = BatchBuilder(block_size, torch.device("cpu"))
    alive: list[Sequence] = []
    fresh = iter(range(10, 10**6))
    for turn in range(400):
        if rng.random() < 0.08 and len(alive) < 6:
            length = rng.randrange(1, 40)
            blocks = [next(fresh) for _ in range(-(-length // block_size))]
            sequence = placed([turn] * length, length - 1, blocks)
            if rng.random() < 0.5:
                sequence.adapter = in_slot(rng.randrange(1, 4))
            alive.insert(rng.randrange(len(alive) + 1), sequence)
        if rng.random() < 0.05 and alive:
            alive.pop(rng.randrange(len(alive)))
        if not alive:
            continue
        for sequence in alive:
            index, blocks_now = sequence.num_computed // block_size, sequence.blocks.block_ids
            if index == len(blocks_now):
                blocks_now.append(next(fresh))
            elif rng.random() < 0.1:
                blocks_now[index] = next(fresh)
        spans = [Span(sequence, 1) for sequence in alive]
        expected = build_batch(spans, len(spans), block_size=block_size, device=CPU)
        if rng.random() < 0.7:  # else somebody else built this step
            same_step(builder.build(spans, len(spans)), expected)
        for sequence in alive:
            sequence.num_computed += 1
            sequence.token_ids.append(rng.randrange(100))


def same_step(batch: RaggedBatch, expected: RaggedBatch) -> None:
    """Equal but for the width of the tables and what is behind a sequence's blocks."""
    for name in RaggedBatch.__dataclass_fields__:
        if name != "block_tables":
            found, wanted = getattr(batch, name), getattr(expected, name)
            assert (found is None) == (wanted is None), name
            if found is None:
                continue
            assert torch.equal(torch.as_tensor(found), torch.as_tensor(wanted)), name
            assert getattr(found, "dtype", None) == getattr(wanted, "dtype", None)
    for row, context in enumerate(expected.context_lens.tolist()):
        num_blocks = -(-context // 4)
        wanted_row = expected.block_tables[row, :num_blocks]
        assert torch.equal(batch.block_tables[row, :num_blocks], wanted_row)


def test_a_step_with_a_chunk_is_built_anew() -> None:
    builder = BatchBuilder(2, CPU)
    decode = Span(placed([10, 11, 12], 2, [4, 6]), 1)
    first = builder.build([decode], 1)
    assert builder.build([decode], 1).token_ids is first.token_ids
    mixed = [decode, Span(placed([30, 31, 32, 33], 0, [2, 5]), 4)]
    assert builder.build(mixed, 1).token_ids.tolist() == [12, 30, 31, 32, 33]
    unfinished = [Span(placed([30, 31, 32, 33], 0, [2, 5]), 1)]
    assert builder.build(unfinished, 0).logit_rows.tolist() == []
