"""A process's portion of a replica: its share of the host, and what it settles with the others."""

from __future__ import annotations

import torch

from cluster.sharding import Rank
from engine.runner.portion import WHOLE_REPLICA, Portion

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


class Together:
    """LoadedTogether among ranks that bring what a test says."""

    def __init__(self, others_bring: int) -> None:
        self.others_bring = others_bring
        self.calls: list[str] = []

    def meet(self) -> None:
        self.calls.append("meet")

    def least(self, number: int, device: torch.device) -> int:
        self.calls.append("least")
        return min(number, self.others_bring)


def test_ranks_of_a_host_share_the_memory_of_its_cpu_and_each_has_a_gpu_to_itself() -> None:
    portion = Portion(rank=Rank(1, 3), num_beside=3)
    assert portion.memory_share(0.6, CPU) == 0.6 / 3
    assert portion.memory_share(0.6, CUDA) == 0.6
    assert WHOLE_REPLICA.memory_share(0.6, CPU) == 0.6


def test_the_pool_is_as_large_as_the_rank_with_the_least_room_has_it() -> None:
    together = Together(others_bring=70)
    portion = Portion(rank=Rank(0, 2), together=together)
    portion.await_others()
    assert portion.agreed_blocks(100, CPU) == 70
    assert portion.agreed_blocks(60, CPU) == 60
    assert together.calls == ["meet", "least", "least"]


def test_a_whole_replica_asks_nobody() -> None:
    WHOLE_REPLICA.await_others()
    assert WHOLE_REPLICA.agreed_blocks(100, CPU) == 100
