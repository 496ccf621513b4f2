"""At which points of a request's life a benchmark loses a rank."""

from __future__ import annotations

import signal

import pytest

from benchmarks.rank_points import NUM_POINTS, points_of


def test_a_life_has_points_before_the_first_token_on_the_way_and_with_no_request_at_all() -> None:
    points = points_of("decode", NUM_POINTS, 2)
    before = [p.share_of_ttft for p in points if p.share_of_ttft is not None]
    after = [p.num_pieces for p in points if p.num_pieces is not None]
    assert (len(before), len(after), len(points)) == (9, 10, NUM_POINTS)
    assert before == sorted(before) and before[0] == 0.0 and before[-1] < 1.0
    assert after == sorted(after) and after[0] == 1
    assert (points[-1].share_of_ttft, points[-1].num_pieces) == (None, None)


@pytest.mark.parametrize("num_points", [4, 10, NUM_POINTS])
def test_every_rank_is_killed_and_stopped_however_many_points_are_run(num_points: int) -> None:
    met = {(point.how, point.rank) for point in points_of("prefill", num_points, 2)}
    assert met == {(how, rank) for how in (signal.SIGKILL, signal.SIGSTOP) for rank in (0, 1)}
