"""Whose part of a step is what, where each rank of a group has sequences of its own.

    the step of all   | decode a | decode b | decode c | chunk d ... | chunk e ... |
    at home at             0          1          0          1             0
    rank 0's          | decode a | decode c | chunk e ... |      blocks by its own numbers
    rank 1's          | decode b | chunk d ... |

A function of the plan and of what every rank knows: nobody is told more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from cluster.block_homes import BlockHomes
from engine.model.ragged_batch import RaggedBatch

_Numbers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class StepHomes:
    """The rank of each sequence of a step, of its tokens, and of its logits."""

    of_seqs: _Numbers  # [num_seqs]
    of_tokens: _Numbers  # [num_tokens]
    of_logits: _Numbers  # [num_logits]

    @classmethod
    def of(cls, batch: RaggedBatch, homes: BlockHomes) -> StepHomes:
        """`batch` is on the host. The first block of a sequence says where all of them are."""
        of_seqs = batch.block_tables[:, 0].numpy().astype(np.int64) // homes.blocks_each
        of_tokens = of_seqs.repeat(np.diff(batch.query_starts.numpy()))
        return cls(of_seqs, of_tokens, of_tokens[batch.logit_rows.numpy()])

    def num_logits(self, num_ranks: int) -> list[int]:
        """Rows of logits that each rank makes."""
        counts: list[int] = np.bincount(self.of_logits, minlength=num_ranks).tolist()
        return counts

    def places_of_logits(self) -> torch.Tensor:
        """int64 [num_logits]: of each row that the step wants, where it is among those of all
        ranks, rank by rank."""
        by_rank = np.argsort(self.of_logits, kind="stable")
        places = np.empty_like(by_rank)
        places[by_rank] = np.arange(len(by_rank))
        return torch.from_numpy(places)


def part_of_rank(
    batch: RaggedBatch, step: StepHomes, own: range, *, rank: int, block_size: int
) -> RaggedBatch | None:
    """The sequences of one rank, in their order, by the numbers of its blocks; None: it has none.

    `own`: its blocks, by the numbers of all.
    """
    seqs = np.flatnonzero(step.of_seqs == rank)
    if not len(seqs):
        return None
    is_own_token = step.of_tokens == rank
    tokens = torch.from_numpy(np.flatnonzero(is_own_token))
    rows = np.cumsum(is_own_token) - 1  # of the step's tokens, among the own ones
    lengths = np.diff(batch.query_starts.numpy())[seqs]
    starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    contexts = batch.context_lens.numpy()[seqs]
    tables = batch.block_tables.numpy()[seqs] - np.int32(own.start)
    wanted = batch.logit_rows.numpy()[step.of_logits == rank]
    return RaggedBatch(
        token_ids=batch.token_ids[tokens],
        positions=batch.positions[tokens],
        slots=batch.slots[tokens] - own.start * block_size,
        query_starts=torch.from_numpy(starts),
        context_lens=torch.from_numpy(contexts),
        block_tables=torch.from_numpy(np.maximum(tables, 0)),  # what pads them is 0 again
        logit_rows=torch.from_numpy(rows[wanted]),
        num_decodes=int((seqs < batch.num_decodes).sum()),
        max_query_len=int(lengths.max()),
        max_context_len=int(contexts.max()),
    )


def row_of_padding(block: int, *, block_size: int) -> RaggedBatch:
    """A step whose one token nobody has asked for; its KV goes to a block that nobody reads."""
    zero, one = torch.zeros(1, dtype=torch.int64), torch.ones(1, dtype=torch.int32)
    return RaggedBatch(
        token_ids=zero,
        positions=zero,
        slots=zero + block * block_size,
        query_starts=torch.tensor([0, 1], dtype=torch.int32),
        context_lens=one,
        block_tables=one[:, None] * block,
        logit_rows=zero[:0],
        num_decodes=1,
        max_query_len=1,
        max_context_len=1,
    )
