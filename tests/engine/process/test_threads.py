"""The native team and torch's pool are sized apart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from cluster.process.own_cores import available_cores
from engine.process.threads import use_threads_to_load, use_threads_to_serve
from kernels.cpu.native_library import native_library
from kernels.cpu.team import TEAM


@pytest.fixture(autouse=True)
def same_threads_afterwards() -> Iterator[None]:
    before = TEAM.num_threads, torch.get_num_threads()
    yield
    TEAM.resize(before[0])
    torch.set_num_threads(before[1])


def test_a_load_uses_all_threads_in_both_pools() -> None:
    assert use_threads_to_load(3) == 3
    assert (TEAM.num_threads, torch.get_num_threads()) == (3, 3)


def test_auto_is_every_core_that_the_process_may_use() -> None:
    assert use_threads_to_load(None) == TEAM.num_threads == available_cores()


def test_ranks_of_one_host_divide_its_threads_and_each_has_one_at_least() -> None:
    assert use_threads_to_load(5, num_beside=2) == TEAM.num_threads == 2
    assert use_threads_to_load(2, num_beside=3) == TEAM.num_threads == 1


def test_torch_steps_back_where_the_native_kernels_serve() -> None:
    use_threads_to_load(3)
    use_threads_to_serve(torch.device("cpu"))
    assert TEAM.num_threads == 3
    assert torch.get_num_threads() == (3 if native_library() is None else 1)


def test_torch_keeps_its_threads_beside_a_gpu() -> None:
    use_threads_to_load(2)
    use_threads_to_serve(torch.device("cuda"))
    assert torch.get_num_threads() == 2


def test_a_team_of_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="0 threads"):
        TEAM.resize(0)
