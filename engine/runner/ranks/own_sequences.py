"""A rank's runner where each rank of a group has sequences of its own.

    the step of all -> the own part of it -> the own forward, which meets the others' in the
                       exchange of experts -> logits to the conductor, in the order of the step

A rank without a sequence computes a row of padding: the exchange is a call of all, in every layer.
It counts for no expert.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from cluster.block_homes import BlockHomes
from cluster.errors import InternalError
from engine.model.ragged_batch import RaggedBatch
from engine.model.routed_experts import RoutedExperts
from engine.runner.model_runner import PartRunner
from engine.runner.ranks.rank_step import StepHomes, part_of_rank, row_of_padding
from kernels.tape.collective import ExpertCollective


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSequences:
    """A PartRunner, which is given the steps of all ranks, and blocks by the numbers of all."""

    own: PartRunner
    """Of this rank's decoder, over its own blocks and one more, which nobody reads."""
    homes: BlockHomes
    block_size: int
    experts: RoutedExperts
    """Of the same decoder."""
    collective: ExpertCollective
    logits_at: int
    """The rank that samples."""

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """See ModelRunner: of these the own ones. Both blocks of a pair are of one rank."""
        blocks = self.homes.ids_of(self.collective.rank)
        first = blocks.start
        self.own.copy_blocks([(old - first, new - first) for old, new in pairs if new in blocks])

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        """See ModelRunner. All logits at the rank that samples, of no use at others. Raises
        InternalError where a rank has made of the plan another part than this one would have."""
        step = StepHomes.of(batch, self.homes)
        rank = self.collective.rank
        part = part_of_rank(
            batch, step, self.homes.ids_of(rank), rank=rank, block_size=self.block_size
        )
        logits = self._of_padding() if part is None else self.own.forward(part)
        return self._gathered(logits, step)

    def close(self) -> None:
        """See PartRunner."""
        self.own.close()

    def _of_padding(self) -> torch.Tensor:
        """No logits: [0, vocab_size]."""
        with self.experts.uncounted():
            return self.own.forward(
                row_of_padding(self.homes.blocks_each, block_size=self.block_size)
            )

    def _gathered(self, logits: torch.Tensor, step: StepHomes) -> torch.Tensor:
        """[own rows, vocab_size] -> [num_logits, vocab_size]"""
        if not len(step.of_logits):
            return logits
        ranks = range(self.collective.world_size)
        to_ranks = [len(logits) if rank == self.logits_at else 0 for rank in ranks]
        received = self.collective.all_to_all(logits, to_ranks)
        if self.collective.rank != self.logits_at:
            return received.rows
        expected = step.num_logits(len(ranks))
        if received.num_rows != expected:
            raise InternalError(
                f"ranks gave {received.num_rows} rows of logits, and {expected} are theirs; the "
                "group is started anew"
            )
        return received.rows[step.places_of_logits().to(logits.device)]
