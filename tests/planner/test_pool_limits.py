from __future__ import annotations

import pytest

from cluster.errors import ConfigError
from cluster.options import load_options
from cluster.planner_options import PlannerOptions
from planner.pool_limits import PoolLimits, limits_of


def test_sizes_are_read_in_their_order() -> None:
    assert limits_of("prefill=1..8,decode-h100=2..16") == (
        PoolLimits("prefill", 1, 8),
        PoolLimits("decode-h100", 2, 16),
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (None, "--pools prefill=1..8"),
        ("prefill=0..8", "1 to 1024"),
        ("prefill=4..2", "the lower number first"),
        ("prefill=1..2000", "1 to 1024"),
        ("prefill=1..2,prefill=1..3", "twice"),
    ],
)
def test_sizes_that_no_pool_may_have_are_refused(words: str | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        limits_of(words)


@pytest.mark.parametrize(
    "words", ["prefill", "prefill=2", "prefill=1..x", "=1..2", "a=1..2;b=1..2"]
)
def test_what_is_no_range_is_refused_where_options_are_read(words: str) -> None:
    with pytest.raises(ConfigError, match="a range of sizes for each pool"):
        load_options(PlannerOptions, {"pools": words}, environ={})
