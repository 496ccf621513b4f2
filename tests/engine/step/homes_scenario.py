"""Small engines whose blocks have several homes, over one tensor that no step may cross."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from cluster.block_homes import BlockHomes
from engine.model.ragged_batch import RaggedBatch
from engine.process.fake_runner import FakeRunner
from engine.runner.model_runner import Replica
from tests.engine.step.engine_scenario import BLOCK_SIZE, VOCAB_SIZE, small_replica


class HomesRunner:
    """The model-free runner over the blocks of all homes; a sequence or a copy that spans two of
    them fails its step."""

    def __init__(self, kv: torch.Tensor, homes: BlockHomes) -> None:
        self._runner, self._homes = FakeRunner(kv, VOCAB_SIZE), homes
        self.rows: list[list[int]] = []
        """Of each step: the tokens computed at each home."""

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """See ModelRunner."""
        for pair in pairs:
            assert len(set(map(self._homes.home_of, pair))) == 1, f"{pair} is copied between homes"
        self._runner.copy_blocks(pairs)

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        """See ModelRunner."""
        rows = [0] * self._homes.num_homes
        lengths = batch.query_starts.diff().tolist()
        contexts = batch.context_lens.tolist()
        tables = batch.block_tables.tolist()
        for table, context, length in zip(tables, contexts, lengths, strict=True):
            blocks = table[: -(-context // BLOCK_SIZE)]
            (home,) = set(map(self._homes.home_of, blocks))
            rows[home] += length
        self.rows.append(rows)
        return self._runner.forward(batch)


def homes_replica(homes: BlockHomes) -> tuple[Replica, HomesRunner, torch.Tensor]:
    """The replica, its runner, and the blocks of all homes by their ids."""
    whole = small_replica(homes.num_blocks)
    runner = HomesRunner(whole.kv, homes)
    replica = replace(
        whole,
        runner=runner,
        kv=whole.kv[: homes.blocks_each],
        num_homes=homes.num_homes,
        max_context_tokens=homes.blocks_each * BLOCK_SIZE,
    )
    return replica, runner, whole.kv
