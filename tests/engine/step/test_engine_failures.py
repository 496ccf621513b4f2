"""What breaks in one place ends what was in that place, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.contract.commands import Submit
from engine.model.ragged_batch import RaggedBatch
from engine.runner.model_runner import Replica
from engine.sampling.sampler import Sampler
from engine.step.engine import Engine
from tests.engine.step.engine_scenario import (
    expected_tokens,
    request,
    run_until_ended,
    small_engine,
    small_replica,
    step,
)


class BreakableRunner:
    """The fake runner, with a switch for each kind of fault."""

    def __init__(self, replica: Replica) -> None:
        self._runner = replica.runner
        self.raises = False
        self.poisoned_token: int | None = None
        """Logits of sequences that end with this token are not numbers."""

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._runner.copy_blocks(pairs)

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        if self.raises:
            raise RuntimeError("the device is gone")
        logits = self._runner.forward(batch)
        logits[batch.token_ids[batch.logit_rows] == self.poisoned_token] = torch.nan
        return logits


def breakable() -> tuple[Engine, BreakableRunner]:
    replica = small_replica(16)
    runner = BreakableRunner(replica)
    return small_engine(replace(replica, runner=runner), max_batch_tokens=16), runner


def test_a_forward_that_fails_ends_the_requests_of_its_step_and_the_engine_lives() -> None:
    engine, runner = breakable()
    runner.raises = True
    engine.apply(Submit(request("a", [1, 2, 3])))
    engine.apply(Submit(request("b", [3, 2, 1], n=2)))
    ended = step(engine).ended
    assert [(e.request_id, e.error_code) for e in ended] == [
        ("a", "internal_error"),
        ("b", "internal_error"),
    ]
    assert "device" not in ended[0].error_message
    assert engine.placement.pool.num_available == 16
    runner.raises = False
    body = request("c", [1, 2, 3])
    engine.apply(Submit(body))
    assert run_until_ended(engine, ["c"])["c"].token_ids() == expected_tokens(body)


def test_blocks_of_a_failed_step_never_enter_the_prefix_cache() -> None:
    engine, runner = breakable()
    runner.raises = True
    engine.apply(Submit(request("a", [1, 2, 3, 4])))
    assert step(engine).cache is None
    assert len(engine.placement.cache) == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_numbers_end_their_request_only(temperature: float) -> None:
    engine, runner = breakable()
    runner.poisoned_token = 6
    bad = request("bad", [1, 2, 6], n=2, temperature=temperature)
    good = request("good", [1, 2, 5], max_tokens=1, temperature=temperature)
    engine.apply(Submit(bad))
    engine.apply(Submit(good))
    completions = run_until_ended(engine, ["bad", "good"])
    assert completions["bad"].ended.error_code == "internal_error"
    assert completions["good"].token_ids() == expected_tokens(good)
    assert engine.placement.pool.num_available == 16


def test_sampling_that_raises_for_one_row_ends_its_request_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = Sampler.sample

    def sample(self: Sampler, logits: torch.Tensor, rows: Any) -> Any:
        if any(row.params.seed == 13 for row in rows):
            raise ValueError("thirteen")
        return whole(self, logits, rows)

    monkeypatch.setattr(Sampler, "sample", sample)
    engine, _ = breakable()
    good = request("good", [1, 2, 5])
    engine.apply(Submit(request("bad", [1, 2, 6], seed=13)))
    engine.apply(Submit(good))
    completions = run_until_ended(engine, ["bad", "good"])
    monkeypatch.undo()
    assert completions["bad"].ended.error_code == "internal_error"
    assert completions["good"].token_ids() == expected_tokens(good)
