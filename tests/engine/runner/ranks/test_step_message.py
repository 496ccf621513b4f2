"""A step's plan arrives as it was sent."""

from __future__ import annotations

import random
from dataclasses import fields, replace

import pytest
import torch

from cluster.errors import InternalError
from engine.model.ragged_batch import RaggedBatch
from engine.runner.ranks.step_message import StepReader, StepWriter


def random_batch(rng: random.Random) -> RaggedBatch:
    """Of any shape that the builder could make, and of some that it could not."""
    lengths = [rng.choice((1, 1, 1, 7, 33)) for _ in range(rng.randint(1, 9))]
    num_tokens, num_seqs = sum(lengths), len(lengths)
    starts = torch.tensor([0, *lengths]).cumsum(0)

    def numbers(*shape: int) -> torch.Tensor:
        drawn = [rng.getrandbits(31) for _ in range(torch.Size(shape).numel())]
        return torch.tensor(drawn, dtype=torch.int64).view(shape)

    return RaggedBatch(
        token_ids=numbers(num_tokens),
        positions=numbers(num_tokens),
        slots=numbers(num_tokens) << 20,
        query_starts=starts.int(),
        context_lens=numbers(num_seqs).int(),
        block_tables=numbers(num_seqs, rng.randint(1, 40)).int(),
        logit_rows=numbers(rng.randint(0, num_seqs)),
        num_decodes=rng.randint(0, num_seqs),
        max_query_len=max(lengths),
        max_context_len=rng.randint(1, 9000),
    )


def assert_same(found: RaggedBatch, batch: RaggedBatch) -> None:
    """Number for number."""
    for item in fields(RaggedBatch):
        sent, received = getattr(batch, item.name), getattr(found, item.name)
        if isinstance(sent, torch.Tensor):
            assert received.dtype is sent.dtype
            assert torch.equal(received, sent)
        else:
            assert received == sent


@pytest.mark.parametrize("seed", range(20))
def test_a_batch_and_its_copies_come_back_as_they_were(seed: int) -> None:
    rng = random.Random(seed)
    batch = random_batch(rng)
    copies = [(rng.getrandbits(30), rng.getrandbits(30)) for _ in range(rng.randint(0, 5))]
    body = bytearray(b"".join(StepWriter().write(batch, copies)))
    found, found_copies = StepReader().read(memoryview(body))
    assert found_copies == copies
    assert_same(found, batch)


def test_a_view_of_a_larger_table_is_sent_as_what_it_shows() -> None:
    batch = random_batch(random.Random(1))
    wide = torch.arange(8 * 64, dtype=torch.int32).view(8, 64)
    num_seqs = len(batch.context_lens)
    shown = wide[:num_seqs, 3:9]
    sent, writer = replace(batch, block_tables=shown), StepWriter()
    for _ in range(2):
        found, _ = StepReader().read(memoryview(bytearray(b"".join(writer.write(sent, ())))))
        assert torch.equal(found.block_tables, shown)
        wide.add_(1)


def test_steps_of_one_shape_are_the_same_tensors_with_new_numbers() -> None:
    batch, writer, reader = random_batch(random.Random(4)), StepWriter(), StepReader()
    body = bytearray(b"".join(writer.write(batch, ())))
    first, _ = reader.read(memoryview(body))
    batch.positions.add_(1)
    batch.block_tables.mul_(2)
    body[:] = b"".join(writer.write(replace(batch, max_context_len=9), ()))
    second, _ = reader.read(memoryview(body))
    assert second.positions is first.positions
    assert second.block_tables is first.block_tables
    assert torch.equal(second.positions, batch.positions)
    assert torch.equal(second.block_tables, batch.block_tables)
    assert second.max_context_len == 9


def test_steps_of_other_shapes_or_in_other_memory_are_read_where_they_are() -> None:
    writer, reader, ring = StepWriter(), StepReader(), bytearray(1 << 16)
    rng = random.Random(5)
    for _ in range(40):
        batch, copies = random_batch(rng), [(1, 2)] * rng.randint(0, 2)
        for sent in (batch, replace(batch, token_ids=batch.token_ids + 1)):
            message = b"".join(writer.write(sent, copies))
            memory = ring if rng.random() < 0.7 else bytearray(len(message))
            memory[: len(message)] = message
            found, found_copies = reader.read(memoryview(memory)[: len(message)])
            assert found_copies == copies
            assert_same(found, sent)


@pytest.mark.parametrize("change", [-1, 1, 8])
def test_a_body_of_another_length_is_refused(change: int) -> None:
    body = bytearray(b"".join(StepWriter().write(random_batch(random.Random(2)), [(1, 2)])))
    wrong = body[:change] if change < 0 else body + bytes(change)
    with pytest.raises(InternalError, match="a step's plan of"):
        StepReader().read(memoryview(bytearray(wrong)))


def test_numbers_of_another_width_are_refused_where_they_are_sent() -> None:
    batch = random_batch(random.Random(3))
    wrong = RaggedBatch(
        **{item.name: getattr(batch, item.name) for item in fields(RaggedBatch)}
        | {"context_lens": batch.context_lens.long()}
    )
    with pytest.raises(ValueError, match=r"needed: torch\.int32"):
        StepWriter().write(wrong, ())
