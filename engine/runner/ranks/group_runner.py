"""The conductor's runner: what it computes, all ranks compute.

    copy_blocks(pairs)   kept, and sent with the step
    forward(batch)       plan to the ranks -> the own part, which meets theirs in every layer;
                         before it, what there is to say of experts; after it, all of it has to
                         have landed, in a group that is whole

The logits are gathered here, and sampled; the tokens reach the others with the
plan of the next step. A step that fails at one rank has failed at all: nothing is tried again.

On GPUs each rank replays a graph of its own where a step has one. Whether it has follows from the
plan alone, by the same rule at all ranks: nobody is told.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.model.experts.balancing import Balancing
from engine.model.ragged_batch import RaggedBatch
from engine.runner.model_runner import ModelRunner
from engine.runner.ranks.group import RankGroup
from engine.runner.ranks.step_message import BlockCopies, StepWriter


class GroupRunner:
    """A ModelRunner. It takes batches on the host."""

    def __init__(
        self,
        own: ModelRunner,
        group: RankGroup,
        balancing: Balancing | None = None,
    ) -> None:
        """`own` computes rank 0's part."""
        self._own, self._group, self._balancing = own, group, balancing
        self._copies: BlockCopies = ()
        self._steps = StepWriter()

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """See ModelRunner: the forward comes next, and takes them along."""
        self._copies = tuple(pairs)

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        """See ModelRunner. Raises RankLost, whatever has failed."""
        copies, self._copies = self._copies, ()
        try:
            if self._balancing is not None:
                self._balancing.turn()
            self._group.publish(self._steps.write(batch, copies))
            self._own.copy_blocks(copies)
            logits = self._own.forward(batch)
            self._group.land()
            return logits
        except Exception as error:
            raise self._group.loss_after(error) from error

    def idle_turn(self) -> None:
        """See GroupTurn. Raises RankLost, whatever has failed."""
        try:
            if self._balancing is not None:
                self._balancing.go_on()
        except Exception as error:
            raise self._group.loss_after(error) from error
