"""Which limits of a step can be divided among the ranks of a group."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.engine_options import EngineOptions
from cluster.errors import ConfigError
from engine.contract.step_parts import check_parts


@pytest.mark.parametrize("param", ["max_num_seqs", "max_batch_tokens"])
def test_a_limit_that_leaves_a_rank_with_nothing_is_refused(param: str) -> None:
    group = EngineOptions(tensor_parallel_size=4, data_parallel_attention=True)
    check_parts(replace(group, **{param: 4}))
    check_parts(replace(EngineOptions(tensor_parallel_size=4), **{param: 1}))
    with pytest.raises(ConfigError, match=f"{param} is 3, and is divided among 4") as raised:
        check_parts(replace(group, **{param: 3}))
    assert raised.value.param == param
