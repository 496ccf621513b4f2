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
from engine.step.step_health import MAX_FAILED_STEPS, EngineBroken, is_device_error
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
        self.error: Exception = RuntimeError("the device is gone")
        self.fatal_token: int | None = None
        """A forward with this token among the first two of a prompt raises."""
        self.poisoned_token: int | None = None
        """Logits of sequences that end with this token are not numbers."""

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._runner.copy_blocks(pairs)

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        if self.raises or self.fatal_token in batch.token_ids[batch.positions < 2].tolist():
            raise self.error
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


def test_a_request_that_spoils_its_step_ends_alone() -> None:
    engine, runner = breakable()
    runner.fatal_token = 6
    good = [request("one", [1, 2, 3]), request("two", [3, 2, 1], n=2)]
    for body in (good[0], request("bad", [1, 6, 3]), good[1]):
        engine.apply(Submit(body))
    completions = run_until_ended(engine, ["one", "bad", "two"])
    assert completions["bad"].ended.error_code == "internal_error"
    for body in good:
        assert completions[body.request_id].ended.error_code == ""
        assert completions[body.request_id].token_ids() == expected_tokens(body)
    assert engine.placement.pool.num_available == 16


def test_a_bad_request_may_come_again_and_again_and_the_engine_lives() -> None:
    engine, runner = breakable()
    runner.fatal_token = 6
    for attempt in range(3 * MAX_FAILED_STEPS):
        engine.apply(Submit(request(str(attempt), [1, 6, 3])))
        assert [ended.error_code for ended in step(engine).ended] == ["internal_error"]
    good = request("good", [1, 2, 3])
    engine.apply(Submit(good))
    assert run_until_ended(engine, ["good"])["good"].token_ids() == expected_tokens(good)


def fails_until_broken(engine: Engine) -> int:
    """How many requests met the engine before it gave up; each has a prompt of its own."""
    for number in range(50):
        engine.apply(Submit(request(str(number), [1 + number % 5, 1 + number // 5])))
        try:
            step(engine)
        except EngineBroken:
            return number + 1
    raise AssertionError("the engine fails every step and lives on")


def test_an_engine_whose_every_step_fails_gives_up_after_a_few_requests() -> None:
    engine, runner = breakable()
    runner.raises = True
    assert fails_until_broken(engine) == MAX_FAILED_STEPS


def test_an_engine_that_gives_no_tokens_gives_up_as_well() -> None:
    engine, runner = breakable()
    runner.forward = lambda batch: torch.full((len(batch.logit_rows), 7), torch.nan)
    assert fails_until_broken(engine) == MAX_FAILED_STEPS


def test_a_token_between_failures_makes_the_engine_good_again() -> None:
    engine, runner = breakable()
    runner.fatal_token = 6
    for number in range(2 * MAX_FAILED_STEPS):
        engine.apply(Submit(request(f"bad {number}", [6, 1 + number])))
        step(engine)
        engine.apply(Submit(request(f"good {number}", [1, 2], max_tokens=1)))
        step(engine)


def test_the_first_device_error_is_enough() -> None:
    engine, runner = breakable()
    runner.raises = True
    runner.error = RuntimeError("CUDA error: an illegal memory access was encountered")
    assert fails_until_broken(engine) == 1


def test_lack_of_memory_and_a_bug_are_no_device_errors() -> None:
    assert is_device_error(torch.AcceleratorError("CUDA error: device-side assert triggered"))
    assert is_device_error(RuntimeError("Triton Error [CUDA]: an illegal memory access"))
    assert not is_device_error(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_device_error(RuntimeError("shapes do not match"))
