"""What a worker's metrics make of the numbers that its engine tells."""

from __future__ import annotations

import pytest

from cluster.generation import EngineLoad
from cluster.identity import Role
from cluster.rank_facts import RankWait
from engine.contract.draft_numbers import DrafterKind, DraftNumbers, DraftPlaces
from worker.metrics import WorkerMetrics


def value_of(metrics: WorkerMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"splitserve_worker_{name}", labels)


def waits(num_plans: int, *seconds: float) -> list[RankWait]:
    return [
        RankWait(rank=rank, num_plans=num_plans, waited_s=waited_s, called_s=2 * waited_s)
        for rank, waited_s in enumerate(seconds)
    ]


def test_waits_of_ranks_are_counted_and_their_last_skew_is_shown() -> None:
    metrics = WorkerMetrics(Role.DECODE, "decode-0")
    metrics.rank_waits(waits(10, 1.0, 0.0))
    metrics.rank_waits(waits(20, 3.0, 0.5))
    assert value_of(metrics, "rank_wait_seconds_total", rank="0") == 3.0
    assert value_of(metrics, "rank_wait_seconds_total", rank="1") == 0.5
    assert value_of(metrics, "rank_collective_seconds_total", rank="0") == 6.0
    assert value_of(metrics, "rank_skew_seconds") == pytest.approx(0.15)


def test_the_blocks_that_each_rank_has_left_are_shown_where_ranks_share_blocks() -> None:
    metrics = WorkerMetrics(Role.DECODE, "decode-0")
    metrics.engine_load(EngineLoad(free_blocks=9))
    assert value_of(metrics, "rank_kv_blocks_left", rank="0") is None
    metrics.engine_load(EngineLoad(free_blocks=9, home_blocks_left=(2, 7)))
    assert value_of(metrics, "rank_kv_blocks_left", rank="0") == 2
    assert value_of(metrics, "rank_kv_blocks_left", rank="1") == 7


def test_busy_seconds_and_tokens_grow_with_what_the_engine_says() -> None:
    metrics = WorkerMetrics(Role.DECODE, "decode-0")
    metrics.engine_load(EngineLoad(prefill_busy_s=1.5, prefilled_tokens=7))
    metrics.engine_load(EngineLoad(prefill_busy_s=2.0, prefilled_tokens=9, decode_busy_s=0.25))
    assert value_of(metrics, "busy_seconds_total", kind="prefill") == 2.0
    assert value_of(metrics, "busy_seconds_total", kind="decode") == 0.25
    assert value_of(metrics, "computed_tokens_total", kind="prefill") == 9
    assert value_of(metrics, "computed_tokens_total", kind="decode") == 0


def test_drafts_are_counted_by_position_and_by_what_became_of_them() -> None:
    metrics = WorkerMetrics(Role.DECODE, "decode-0")
    first, second = DraftPlaces(tried=[4, 3], kept=[4, 1]), DraftPlaces(tried=[6, 3], kept=[5, 1])
    ngram, model = DrafterKind.NGRAM, DrafterKind.MODEL
    metrics.drafts_were(DraftNumbers(by_drafter={ngram: first}, num_steps=4, num_tokens=9))
    both = {ngram: second, model: first}
    took = {"plain_s": 3.0, "took_s": 2.0, "guess_s": 0.5}
    metrics.drafts_were(DraftNumbers(by_drafter=both, num_steps=6, num_tokens=12, **took))

    def tokens(drafter: DrafterKind, place: str, outcome: str) -> float | None:
        return value_of(
            metrics, "draft_tokens_total", drafter=drafter, position=place, outcome=outcome
        )

    ways = [(place, outcome) for place in "12" for outcome in ("kept", "dropped")]
    assert [tokens(ngram, *way) for way in ways] == [5, 1, 1, 2]
    assert [tokens(model, *way) for way in ways] == [4, 0, 1, 2]
    assert value_of(metrics, "draft_guess_seconds_total") == 0.5
    assert value_of(metrics, "draft_steps_total") == 6
    assert value_of(metrics, "draft_step_tokens_total") == 12
    assert value_of(metrics, "draft_plain_seconds_total") == 3.0
    assert value_of(metrics, "draft_step_seconds_total") == 2.0
    assert value_of(metrics, "drafters_out", drafter="model") is None
    metrics.drafts_were(DraftNumbers(by_drafter=both, num_steps=6, num_tokens=12, out=[model]))
    assert value_of(metrics, "drafters_out", drafter="model") == 1
    assert value_of(metrics, "drafters_out", drafter="ngram") is None
