"""Where the time to first token of one request went."""

from __future__ import annotations

import pytest

from cli.inspect.timed_requests import IN_WORDS, NOT_KNOWN, By, TtftStage, stages_of, timed
from tests.cli.inspect.made_up_tail import failed, without_stages
from tests.cli.inspect.made_up_traces import traced_alone, traced_pair

MODELS = {"decode-0": "tiny"}


def test_the_stages_of_a_pair_are_all_of_its_time_to_first_token() -> None:
    stages = stages_of(traced_pair())
    assert stages == pytest.approx(
        {
            TtftStage.DOOR: 1.5, TtftStage.QUEUE: 2.5, TtftStage.RETRY: 0.0, TtftStage.SLOT: 2.0,
            TtftStage.WAIT: 127.0, TtftStage.COMPUTE: 234.0, TtftStage.TRANSFER: 2.0,
            TtftStage.FIRST: 3.0,
        }
    )  # fmt: skip
    assert sum(stages.values()) == pytest.approx(372.0)


def test_time_at_a_worker_that_was_lost_is_nobody_elses() -> None:
    stages = stages_of(traced_alone())
    assert stages[TtftStage.RETRY] == pytest.approx(40.0)
    assert stages[TtftStage.WAIT] == pytest.approx(6.0) and stages[
        TtftStage.COMPUTE
    ] == pytest.approx(40)
    assert sum(stages.values()) == pytest.approx(90.0)


def test_clocks_that_disagree_make_no_more_than_the_whole() -> None:
    trace = traced_pair()
    trace.legs[0].stages.source_prefill_ms = 9999.0
    stages = stages_of(trace)
    assert sum(stages.values()) == pytest.approx(372.0) and min(stages.values()) >= 0


def test_a_worker_that_says_no_stages_is_believed_its_timing() -> None:
    stages = stages_of(without_stages())
    assert stages[TtftStage.COMPUTE] == 40.0 and sum(stages.values()) == pytest.approx(90.0)


def test_a_request_belongs_to_one_slice_of_each_kind_and_to_a_worker_of_each_pool() -> None:
    pair, alone = timed(traced_pair(), MODELS), timed(traced_alone(), MODELS)
    assert pair is not None and alone is not None
    assert pair.slices == {
        (By.LENGTH, "2048-8191 tokens"), (By.HIT, "50-89% cached"), (By.TENANT, "acme"),
        (By.MODEL, "tiny"), (By.ROUTE, "pair"),
        (By.POOL, "prefill"), (By.POOL, "decode"),
        (By.WORKER, "prefill-0"), (By.WORKER, "decode-0"),
    }  # fmt: skip
    assert {(By.WORKER, "decode-1"), (By.MODEL, NOT_KNOWN), (By.ROUTE, "alone")} < alone.slices
    assert alone.itl_ms == 6.0


def test_a_failure_counts_and_a_client_that_left_does_not() -> None:
    lost = timed(failed("worker_lost"), MODELS)
    assert lost is not None and lost.ttft_ms is None and (By.TENANT, "acme") in lost.slices
    assert timed(failed("cancelled"), MODELS) is None


def test_every_stage_has_words() -> None:
    assert set(IN_WORDS) == set(TtftStage)
