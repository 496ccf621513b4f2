"""A process's portion of a replica: its share of the host, and what it settles with the others."""

from __future__ import annotations

from pathlib import Path

import torch

from cluster.sharding import Rank
from engine.runner.portion import WHOLE_REPLICA, Portion
from engine.runner.replica import load_part
from tests.engine.model.family_models import random_model, saved_card
from tests.engine.runner.ranks.groups import spec_of

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

    def settle(self) -> None:
        self.calls.append("settle")


def test_ranks_of_a_host_share_the_memory_of_its_cpu_and_each_has_a_gpu_to_itself() -> None:
    portion = Portion(rank=Rank(1, 3), num_beside=3)
    assert portion.num_sharing(CPU) == 3
    assert portion.num_sharing(CUDA) == 1
    assert WHOLE_REPLICA.num_sharing(CPU) == 1


def test_the_pool_is_as_large_as_the_rank_with_the_least_room_has_it() -> None:
    together = Together(others_bring=70)
    portion = Portion(rank=Rank(0, 2), together=together)
    portion.await_others()
    assert portion.agreed(100, CPU) == 70
    assert portion.agreed(60, CPU) == 60
    assert together.calls == ["meet", "least", "least"]


def test_a_whole_replica_asks_nobody() -> None:
    WHOLE_REPLICA.await_others()
    assert WHOLE_REPLICA.agreed(100, CPU) == 100


def test_ranks_agree_on_the_context_before_any_computes(tmp_path: Path) -> None:
    """A pool of given bytes holds more tokens where a rank has fewer heads."""
    card = saved_card(random_model("LlamaForCausalLM"), tmp_path)
    spec = spec_of(card, 1, kv_memory_bytes=8 << 20)
    portion = Portion(together=Together(others_bring=32))
    part = load_part(spec, lambda phase, fraction: None, portion)
    assert part.size.context_tokens == 32
    assert part.size.warm_up_limits([0]).max_context_tokens == 32
