"""Ten thousand steps leave nothing behind at any rank."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import torch

from engine.model.ragged_batch import RaggedBatch
from tests.engine.model.family_models import random_model, saved_card
from tests.engine.runner.ranks.groups import SeenSpawner, running, spec_of
from tests.engine.runner.ranks.test_lost_ranks import LIMITS

NUM_STEPS, NUM_WARM = 10_000, 2_000
MOST_BYTES = 2 << 20
"""A thousand bytes a step would be eight of these."""
pytestmark = [pytest.mark.minutes, pytest.mark.timeout(400)]


def own_bytes(process: psutil.Process) -> int:
    """Without what is shared: the ring of the plans comes into memory as it is written round."""
    memory = process.memory_info()
    return int(memory.rss - memory.shared)


def decode_of(num_seqs: int) -> RaggedBatch:
    """One token each, in a block of its own."""
    rows = torch.arange(num_seqs)
    return RaggedBatch(
        token_ids=rows,
        positions=torch.full((num_seqs,), 3),
        slots=rows * 16 + 3,
        query_starts=torch.arange(num_seqs + 1, dtype=torch.int32),
        context_lens=torch.full((num_seqs,), 4, dtype=torch.int32),
        block_tables=rows.int().view(-1, 1),
        logit_rows=rows,
        num_decodes=num_seqs,
        max_query_len=1,
        max_context_len=4,
    )


def test_ten_thousand_steps_leave_the_memory_of_every_rank_flat(tmp_path: Path) -> None:
    card = saved_card(random_model("LlamaForCausalLM", num_hidden_layers=1), tmp_path)
    spawner = SeenSpawner()
    batches = [decode_of(num_seqs) for num_seqs in (1, 2, 5)]
    with running(spec_of(card, 2, **LIMITS), spawner) as replica:
        ranks = [psutil.Process(), psutil.Process(spawner.ranks[1].pid)]
        before: list[int] = []
        for step in range(NUM_WARM + NUM_STEPS):
            if step == NUM_WARM:
                before = [own_bytes(rank) for rank in ranks]
                files = [rank.num_fds() for rank in ranks]
            replica.runner.copy_blocks([(0, 7)] if step % 5 == 0 else [])
            replica.runner.forward(batches[step % 3])
        grown = [own_bytes(rank) - held for rank, held in zip(ranks, before, strict=True)]
        assert max(grown) < MOST_BYTES, grown
        assert [rank.num_fds() for rank in ranks] == files
