"""How an engine's process comes to be the conductor of a group."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from structlog.testing import CapturingLogger

from cluster.errors import ConfigError
from engine.process import load_ranks
from ranks.spawner import RankPlaces
from tests.cluster.models.configs import DEEPSEEK_V3, SMOLLM2, card_of
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


@pytest.mark.parametrize(("has_own", "rows"), [(False, "all"), (True, "own")])
def test_a_group_says_once_which_rows_a_rank_has(
    has_own: bool, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_ranks, "RaySpawner", lambda *at, **by: FullCluster(*at, seen=[]))
    log = CapturingLogger()
    monkeypatch.setattr(load_ranks, "_LOG", log)
    card = card_of(DEEPSEEK_V3)
    spec = spec_of(card, 2, rank_launcher="ray", data_parallel_attention=has_own)
    with pytest.raises(ConfigError, match="full"):
        load_ranks.loader_of("decode_worker.rank_process")(spec, lambda phase, fraction: None)
    (told,) = (call.kwargs for call in log.calls)
    assert (told["num_ranks"], told["rows_at_a_rank"]) == (2, rows)
    homes = 2 if has_own else 1
    assert told["max_num_seqs_at_a_rank"] * homes == spec.options.max_num_seqs
    assert told["max_batch_tokens_at_a_rank"] * homes == spec.options.max_batch_tokens


def test_an_engine_without_ranks_is_told_so() -> None:
    with pytest.raises(ConfigError, match="use --tensor-parallel-size 1"):
        load_ranks.spawner_of(spec_of(card_of(SMOLLM2), 2), "")
