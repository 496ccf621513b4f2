"""Where ranks leave the logits that one of them wants."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from kernels.cpu.logit_rows import LogitRows
from kernels.cpu.step_records import GatherLogitsRecord, StepRecord

OWN_WIDTH, RANKS, VOCAB_SIZE = 8, 2, 15
BYTES = 4


def rows_of(rank: int, root: int) -> LogitRows:
    sums = SimpleNamespace(rank=rank, world_size=RANKS)
    gather = SimpleNamespace(root=root, out=SimpleNamespace(width=VOCAB_SIZE))
    form = {"lines": [GatherLogitsRecord()], "sums": sums, "gather": gather}
    return LogitRows(cast(Any, SimpleNamespace(**form, vocab_size=OWN_WIDTH)))


def test_the_root_has_a_tensor_of_each_step_s_own_with_its_columns_among_those_of_all() -> None:
    rows, step = rows_of(1, root=1), StepRecord(num_logits=3)
    first, second = rows.make(step), rows.make(step)
    assert first.data_ptr() != second.data_ptr()
    assert step.logits == second.data_ptr() + OWN_WIDTH * BYTES
    assert step.logits_stride * BYTES == rows.row_bytes == RANKS * OWN_WIDTH * BYTES
    assert rows.gathered(second).shape == (3, VOCAB_SIZE)


def test_a_rank_that_gives_its_logits_away_keeps_one_memory_that_grows() -> None:
    rows, step = rows_of(1, root=0), StepRecord()
    places = []
    for num_logits in (2, 5, 3, 5):
        step.num_logits = num_logits
        made = rows.make(step)
        assert made.shape[0] >= num_logits
        assert (step.logits, step.logits_stride) == (made.data_ptr(), OWN_WIDTH)
        assert len(rows.gathered(made)) == 0
        places.append(made.data_ptr())
    assert places[1:] == [places[1]] * 3
