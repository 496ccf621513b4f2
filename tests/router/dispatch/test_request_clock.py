"""How a time to first token adds up."""

import pytest

from cluster.generation import Timing
from router.dispatch.request_clock import RequestClock


class Clock:
    now_s = 10.0

    def __call__(self) -> float:
        return self.now_s


def test_the_parts_add_up_to_the_time_to_first_token_exactly() -> None:
    clock = Clock()
    stamps = RequestClock(9.9, clock=clock)
    clock.now_s = 10.05
    stamps.dispatched()
    clock.now_s = 10.2
    stamps.tokens(0, 1)
    clock.now_s = 10.6
    stamps.tokens(0, 4)
    timing = stamps.complete(
        Timing(queue_ms=10.0, prefill_ms=60.0, kv_ms=5.0, kv_bytes=7), longest_tokens=5
    )
    assert timing.ttft_ms == pytest.approx(300.0)
    assert timing.queue_ms == pytest.approx(160.0)
    assert timing.decode_ms == pytest.approx(75.0)
    assert timing.queue_ms + timing.prefill_ms + timing.kv_ms + timing.decode_ms == pytest.approx(
        timing.ttft_ms, abs=1e-9
    )
    assert timing.itl_ms == pytest.approx(100.0)
    assert timing.kv_bytes == 7


@pytest.mark.parametrize("parts", [(500.0, 1.0, 1.0), (1.0, 500.0, 1.0), (1.0, 1.0, 500.0)])
def test_a_worker_that_measured_more_than_there_was_is_cut_to_fit(
    parts: tuple[float, float, float],
) -> None:
    clock = Clock()
    stamps = RequestClock(9.9, clock=clock)
    stamps.tokens(0, 1)
    timing = stamps.complete(
        Timing(queue_ms=parts[0], prefill_ms=parts[1], kv_ms=parts[2]), longest_tokens=1
    )
    stages = (timing.queue_ms, timing.prefill_ms, timing.kv_ms, timing.decode_ms)
    assert min(stages) >= 0
    assert sum(stages) == pytest.approx(timing.ttft_ms)


def test_gaps_are_counted_per_choice() -> None:
    clock, gaps = Clock(), list[float]()
    stamps = RequestClock(9.0, clock=clock, on_gap=gaps.append)
    assert not stamps.has_token
    for choice, now_s in ((0, 10.0), (1, 10.5), (0, 11.0), (1, 11.5)):
        clock.now_s = now_s
        stamps.tokens(choice, 1)
    stamps.tokens(0, 0)
    assert gaps == [1.0, 1.0]
    assert stamps.has_token
