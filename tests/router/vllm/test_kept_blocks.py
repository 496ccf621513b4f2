"""What a prefill server lets be read, and for how long that is believed."""

from __future__ import annotations

import msgspec
import pytest

from router.vllm.kept_blocks import Belief, KeptBlocks, parameters_in
from tests.manual_clock import ManualClock
from tests.router.vllm import recorded

LEASE_S = 30.0
DEEP = b'{"kv_transfer_params":' + b'{"a":' * 50_000


def handoff_at(clock: ManualClock, *, late_reads: int | None = 4) -> KeptBlocks:
    parameters = parameters_in(recorded.PREFILLED)
    assert parameters is not None
    return KeptBlocks(
        parameters, answered_s=clock(), lease_s=LEASE_S, late_reads=late_reads, clock=clock
    )


def test_parameters_are_passed_on_unchanged_and_once() -> None:
    handoff = handoff_at(ManualClock())
    told = msgspec.json.decode(recorded.PREFILLED)["kv_transfer_params"]
    assert handoff.take() == told and handoff.cached_tokens == 3
    assert handoff.take() is None


def test_later_than_a_third_of_the_lease_they_are_dropped() -> None:
    clock = ManualClock()
    in_time, late = handoff_at(clock), handoff_at(clock)
    clock.advance(LEASE_S / 3)
    assert in_time.take() is not None
    clock.advance(0.001)
    assert late.take() is None


def test_belief_ends_with_the_lease() -> None:
    clock = ManualClock()
    handoff = handoff_at(clock)
    assert handoff.belief is Belief.GOOD
    clock.advance(LEASE_S / 2)
    assert handoff.belief is Belief.DOUBTFUL
    clock.advance(LEASE_S / 2 + 0.001)
    assert handoff.belief is Belief.TOO_LATE


def test_what_happens_after_their_readers_first_word_makes_no_belief_worse() -> None:
    clock = ManualClock()
    handoff = handoff_at(clock)
    clock.advance(LEASE_S / 2)
    handoff.freeze()
    clock.advance(LEASE_S)
    handoff.freeze()
    assert handoff.belief is Belief.DOUBTFUL


def test_a_counter_that_moved_or_is_not_told_acquits_nobody() -> None:
    handoff = handoff_at(ManualClock(), late_reads=4)
    assert not handoff.was_late(4)
    assert handoff.was_late(5) and handoff.was_late(None)
    assert handoff_at(ManualClock(), late_reads=None).was_late(4)


@pytest.mark.parametrize(
    "lacking",
    ["remote_engine_id", "remote_request_id", "remote_host", "remote_port", "remote_block_ids"],
)
def test_without_what_a_reader_needs_there_is_nothing_to_read(lacking: str) -> None:
    answer = msgspec.json.decode(recorded.PREFILLED)
    del answer["kv_transfer_params"][lacking]
    assert parameters_in(msgspec.json.encode(answer)) is None


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"kv_transfer_params":null}', b"\xff", pytest.param(DEEP, id="deep")],
)
def test_an_answer_of_another_kind_has_nothing_to_read(body: bytes) -> None:
    assert parameters_in(body) is None
