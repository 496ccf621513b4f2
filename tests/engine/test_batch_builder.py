"""The tensors of a step, against a drawn example."""

from __future__ import annotations

from array import array
from collections import Counter
from types import SimpleNamespace
from typing import Any

import torch

from engine.batch_builder import Span, build_batch
from engine.lifecycle import Life
from engine.sequence import Sequence
from tests.engine.engine_scenario import ROOT, VirtualClock


def placed(token_ids: list[int], num_computed: int, block_ids: list[int]) -> Sequence:
    life = Life(VirtualClock(), Counter())
    sequence = Sequence("r", token_ids, cache_root=ROOT, arrival=1, life=life)
    sequence.num_computed = num_computed
    lease: Any = SimpleNamespace(block_ids=array("i", block_ids))
    sequence.lease = lease
    return sequence


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
