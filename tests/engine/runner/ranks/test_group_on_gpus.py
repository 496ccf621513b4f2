"""A group whose ranks have a GPU each: its graphs have NCCL's collectives inside. Never run yet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.errors import RankLost
from cluster.models.card import ModelCard
from cluster.supervisor.devices import visible_gpus
from engine.contract.commands import Submit
from engine.contract.spec import EngineSpec
from engine.offline.replica import greedy_request
from engine.step.engine import Engine
from tests.engine.model.family_models import random_model, saved_card
from tests.engine.model.mixture_cards import card_of
from tests.engine.model.parity import random_prompts
from tests.engine.runner.ranks.groups import SeenSpawner, answers_of, running, spec_of

NUM_RANKS = 2
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(torch.cuda.device_count() < NUM_RANKS, reason="fewer than two GPUs"),
]


@pytest.fixture(params=["LlamaForCausalLM", "MixtralForCausalLM", "v3"])
def card(request: pytest.FixtureRequest, tmp_path: Path) -> ModelCard:
    if request.param == "v3":
        return card_of("v3", tmp_path)
    return saved_card(random_model(request.param), tmp_path)


@pytest.fixture
def spawner(monkeypatch: pytest.MonkeyPatch) -> SeenSpawner:
    """A GPU for each rank; the variable of this process, which it sets, is restored."""
    gpus = visible_gpus(os.environ)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(gpus))
    return SeenSpawner(gpus=gpus)


def on_gpus(card: ModelCard, num_ranks: int, **options: Any) -> EngineSpec:
    limits = {"max_context_tokens": 96, "kv_memory_bytes": 64 << 20, "max_num_seqs": 5}
    return spec_of(card, num_ranks, device="cuda", **limits, **options)


@pytest.mark.parametrize("cuda_graphs", [True, False])
@pytest.mark.parametrize("data_parallel_attention", [False, True])
def test_two_gpus_answer_as_one_does(
    card: ModelCard, spawner: SeenSpawner, cuda_graphs: bool, data_parallel_attention: bool
) -> None:
    if data_parallel_attention and card.config.mixture is None:
        pytest.skip("for models with routed experts")
    prompts = random_prompts((5, 17, 40), card.config.vocab_size)
    alone = on_gpus(card, 1)
    with running(alone) as replica:
        expected = answers_of(Engine(replica, alone.options), prompts, 24)
    spec = on_gpus(
        card,
        NUM_RANKS,
        cuda_graphs=cuda_graphs,
        data_parallel_attention=data_parallel_attention,
    )
    with running(spec, spawner) as replica:
        assert answers_of(Engine(replica, spec.options), prompts, 24) == expected


def test_a_rank_that_is_killed_between_two_replays_is_named(
    card: ModelCard, spawner: SeenSpawner
) -> None:
    spec = on_gpus(card, NUM_RANKS)
    with running(spec, spawner) as replica:
        engine = Engine(replica, spec.options)
        prompt = random_prompts((40,), card.config.vocab_size)[0]
        engine.apply(Submit(greedy_request("r", prompt, 40)))
        for _ in range(4):
            engine.step()
        spawner.ranks[1].kill()
        with pytest.raises(RankLost, match="rank 1 .*SIGKILL"):
            while engine.has_work:
                engine.step()
