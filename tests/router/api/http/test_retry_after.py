"""Who was refused together does not come back together."""

import random

import pytest

from cluster.errors import NoWorker, QueueFull
from cluster.retry_after import DEFAULT_RETRY_AFTER_S, JITTER_SHARE
from router.api.http.errors import error_headers


def waits_ms(error, draw) -> int:
    return int(dict(error_headers(error, draw))[b"retry-after-ms"])


@pytest.mark.parametrize("drawn", [0.0, 0.5, 1.0])
def test_the_wait_is_longer_by_the_share_that_was_drawn(drawn):
    wait_ms = waits_ms(QueueFull("full", retry_after_s=4.0), lambda: drawn)
    assert wait_ms == 4000 * (1 + JITTER_SHARE * drawn)


def test_an_error_that_names_no_wait_gets_a_drawn_one_as_well():
    least_ms = 1000 * DEFAULT_RETRY_AFTER_S
    told = {waits_ms(NoWorker("none"), random.Random(seed).random) for seed in range(100)}
    assert len(told) > 50
    assert least_ms <= min(told) and max(told) <= least_ms * (1 + JITTER_SHARE)


def test_a_hundred_that_were_refused_at_once_come_back_spread_over_the_wait():
    draw = random.Random(1).random
    told = sorted(waits_ms(QueueFull("full", retry_after_s=10.0), draw) for _ in range(100))
    gaps = [later - earlier for earlier, later in zip(told, told[1:], strict=False)]
    assert told[-1] - told[0] > 4000 and max(gaps) < 500
