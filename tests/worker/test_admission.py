"""What a worker's server refuses, against what a router may send."""

import pytest

from cluster.deadline import MAX_TIMEOUT_S
from cluster.errors import InvalidRequest
from router.dispatch.time_limits import DefaultTimes
from worker.admission import check_timeout


def test_the_longest_time_that_a_router_gives_is_one_that_a_worker_takes() -> None:
    times = DefaultTimes(first_token_s=300.0, between_tokens_s=20.0)
    for asked_s in (None, MAX_TIMEOUT_S):
        check_timeout(times.limits(0.0, asked_s).whole.at_s * 1e3)
    with pytest.raises(InvalidRequest, match="timeout_ms"):
        check_timeout(MAX_TIMEOUT_S * 1e3 + 1.0)
