"""What a decode worker says of a prompt's parts, on its way to the router."""

from dataclasses import replace

import pytest

from cluster.prompt_stages import PromptStages, stages_from_wire, stages_to_wire

PULLED = PromptStages(
    said_ms=50.0,
    reserved_ms=1.0,
    asked_ms=0.0,
    accepted_ms=3.0,
    offered_ms=20.0,
    first_block_ms=22.0,
    last_block_ms=44.0,
    first_token_ms=41.0,
    source_queue_ms=5.0,
    source_prefill_ms=30.0,
    num_failed_sources=1,
)


@pytest.mark.parametrize("stages", [PULLED, PromptStages(), PromptStages(first_token_ms=7.0)])
def test_what_was_and_what_was_not_comes_over_as_it_is(stages: PromptStages) -> None:
    assert stages_from_wire(stages_to_wire(stages)) == stages


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0, 1e12])
def test_numbers_that_no_worker_can_have_are_not_drawn(wrong: float) -> None:
    for name in ("said_ms", "first_token_ms", "source_queue_ms"):
        assert stages_from_wire(stages_to_wire(replace(PULLED, **{name: wrong}))) is None
