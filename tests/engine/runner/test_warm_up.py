"""What is run before the first request, so that nothing is compiled in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
import torch

from engine.model.ragged_batch import RaggedBatch
from engine.runner import warm_up as warm_up_module
from engine.runner.warm_up import WarmUpLimits, longest_prompts, warm_up
from engine.sampling.logits import SamplingRow
from kernels.reference.mask_logits import check_masks
from kernels.token_mask import TokenMask

VOCAB = 7


class NotedRunner:
    """A ModelRunner that launches nothing, as a group's conductor has it."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, int]] = []
        """(decodes, tokens)"""
        self.kinds: set[tuple[bool, bool, bool]] = set()
        """(has a prompt of more than 8 tokens, rows have adapters, is pooled)"""

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """See ModelRunner."""

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        """See ModelRunner."""
        self.shapes.append((batch.num_decodes, len(batch.token_ids)))
        has_adapters = batch.adapters is not None and bool(batch.adapters.all())
        self.kinds.add((batch.max_query_len > 8, has_adapters, batch.is_pooled))
        assert not (batch.is_pooled and batch.num_decodes), "only prompts are pooled"
        return torch.zeros(len(batch.logit_rows), VOCAB)


def limits(*, compiles: bool) -> WarmUpLimits:
    return WarmUpLimits(
        max_num_seqs=5,
        max_batch_tokens=16,
        max_context_tokens=12,
        block_size=4,
        scratch_blocks=(9,),
        compiles=compiles,
    )


def test_where_nothing_is_compiled_one_block_is_enough() -> None:
    runner = NotedRunner()
    warm_up(runner, limits(compiles=False), lambda phase, fraction: None)
    assert runner.shapes == [(0, 4)]


def test_steps_with_adapters_and_pooled_ones_are_run_where_there_may_be_such(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warm_up_module, "draw_on_device", lambda logits, rows: None)
    plain, kinds = {(False, False, False), (True, False, False)}, [False, True]
    for has_adapters, is_pooled in product(kinds, kinds):
        runner = NotedRunner()
        both = replace(limits(compiles=True), has_adapters=has_adapters, is_pooled=is_pooled)
        warm_up(runner, both, lambda phase, fraction: None)
        allowed = product(kinds, kinds[: 1 + has_adapters], kinds[: 1 + is_pooled])
        assert runner.kinds == set(allowed)
        beside = NotedRunner()
        warm_up(beside, both.beside(both.max_context_tokens), lambda phase, fraction: None)
        assert beside.kinds == plain
        assert [(b.adapters is not None, b.is_pooled) for b in longest_prompts(both)] == list(
            product(kinds[: 1 + has_adapters], kinds[: 1 + is_pooled])
        )


def test_rows_of_every_home_are_sampled_together(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def draw(logits: torch.Tensor, rows: Sequence[SamplingRow]) -> None:
        assert [row.logit_row for row in rows] == list(range(len(logits)))
        drawn.append(len(rows))

    monkeypatch.setattr(warm_up_module, "draw_on_device", draw)
    both = replace(limits(compiles=True), scratch_blocks=(9, 19))
    warm_up(NotedRunner(), both, lambda phase, fraction: None)
    assert set(drawn) == {2, 4, 8, 10}


def test_a_group_on_gpus_runs_every_shape_and_every_way_to_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[tuple[int, bool, bool]] = []

    def draw(logits: torch.Tensor, rows: Sequence[SamplingRow]) -> None:
        params = rows[0].params
        assert len(logits) == len(rows)
        drawn.append((len(rows), params.is_greedy, params.top_k > 0))

    def mask(logits: torch.Tensor, rows: Sequence[int], masks: Sequence[TokenMask]) -> None:
        check_masks(logits, rows, masks)
        masked.extend(rows)

    masked: list[int] = []
    monkeypatch.setattr(warm_up_module, "draw_on_device", draw)
    monkeypatch.setattr(warm_up_module, "mask_logits", mask)
    runner = NotedRunner()
    warm_up(runner, limits(compiles=True), lambda phase, fraction: None)
    assert masked == [0]
    assert {(decodes, 0) for decodes in (1, 2, 4, 5)} <= {(d, t - d) for d, t in runner.shapes}
    assert {(0, tokens) for tokens in (1, 2, 4, 8, 12)} <= set(runner.shapes)
    ways = {(True, False), (False, False), (False, True)}
    assert set(drawn) == {(count, *way) for count in (1, 2, 4, 5) for way in ways}
