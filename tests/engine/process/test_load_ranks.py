"""How an engine's process comes to be the conductor of a group."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cluster.errors import ConfigError
from engine.process import load_ranks
from ranks.spawner import RankPlaces
from tests.cluster.models.configs import SMOLLM2, card_of
from tests.engine.runner.ranks.groups import spec_of


class FullCluster:
    """A spawner that finds no room."""

    def __init__(self, module: str, *, seen: list[str], **given: Any) -> None:
        self._seen = seen

    def place(self, world_size: int) -> RankPlaces:
        self._seen.append("place")
        raise ConfigError("full")

    def close(self) -> None:
        self._seen.append("close")


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_nobody_asks_cuda_before_the_ranks_have_their_places(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: seen.append("CUDA"))
    monkeypatch.setattr(load_ranks, "RaySpawner", lambda *at, **by: FullCluster(*at, seen=seen))
    spec = spec_of(card_of(SMOLLM2), 2, device=device, rank_launcher="ray")
    with pytest.raises(ConfigError, match="full"):
        load_ranks.loader_of("decode_worker.rank_process")(spec, lambda phase, fraction: None)
    assert seen == ["place", "close"]


def test_an_engine_without_ranks_is_told_so() -> None:
    with pytest.raises(ConfigError, match="use --tensor-parallel-size 1"):
        load_ranks.spawner_of(spec_of(card_of(SMOLLM2), 2), "")
