"""A step's plan arrives as it was sent."""

from __future__ import annotations

import random
from dataclasses import fields

import pytest
import torch

from cluster.errors import InternalError
from engine.model.ragged_batch import RaggedBatch
from engine.runner.ranks.step_message import read_step, write_step


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


@pytest.mark.parametrize("seed", range(20))
def test_a_batch_and_its_copies_come_back_as_they_were(seed: int) -> None:
    rng = random.Random(seed)
    batch = random_batch(rng)
    copies = [(rng.getrandbits(30), rng.getrandbits(30)) for _ in range(rng.randint(0, 5))]
    body = bytearray(b"".join(write_step(batch, copies)))
    found, found_copies = read_step(memoryview(body))
    assert found_copies == copies
    for item in fields(RaggedBatch):
        sent, received = getattr(batch, item.name), getattr(found, item.name)
        if isinstance(sent, torch.Tensor):
            assert received.dtype is sent.dtype
            assert torch.equal(received, sent)
        else:
            assert received == sent


def test_a_view_of_a_larger_table_is_sent_as_what_it_shows() -> None:
    batch = random_batch(random.Random(1))
    wide = torch.arange(8 * 64, dtype=torch.int32).view(8, 64)
    num_seqs = len(batch.context_lens)
    shown = wide[:num_seqs, 3:9]
    sent = RaggedBatch(
        **{item.name: getattr(batch, item.name) for item in fields(RaggedBatch)}
        | {"block_tables": shown}
    )
    found, _ = read_step(memoryview(bytearray(b"".join(write_step(sent, ())))))
    assert torch.equal(found.block_tables, shown)


@pytest.mark.parametrize("change", [-1, 1, 8])
def test_a_body_of_another_length_is_refused(change: int) -> None:
    body = bytearray(b"".join(write_step(random_batch(random.Random(2)), [(1, 2)])))
    wrong = body[:change] if change < 0 else body + bytes(change)
    with pytest.raises(InternalError, match="a step's plan of"):
        read_step(memoryview(bytearray(wrong)))


def test_numbers_of_another_width_are_refused_where_they_are_sent() -> None:
    batch = random_batch(random.Random(3))
    wrong = RaggedBatch(
        **{item.name: getattr(batch, item.name) for item in fields(RaggedBatch)}
        | {"context_lens": batch.context_lens.long()}
    )
    with pytest.raises(ValueError, match=r"needed: torch\.int32"):
        write_step(wrong, ())
