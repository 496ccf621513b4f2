"""One model in several processes answers as it does in one."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
from msgspec import structs

from cluster.generation import GeneratedToken
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from cluster.sampling import SamplingParams
from engine.contract.messages import Frame
from engine.model.experts import rebalancer
from engine.offline.queue import generate
from engine.offline.replica import greedy_request
from engine.runner.model_runner import Replica
from engine.step.engine import Engine
from tests.engine.model.family_models import random_model, saved_card
from tests.engine.model.parity import random_prompts
from tests.engine.runner.ranks.groups import (
    SeenSpawner,
    answers_of,
    greedy_tokens,
    running,
    spec_of,
)
from tests.fleet.reference import NUM_NEW_TOKENS, Reference

ASKED = {2: (0, 1, 2, 3), 3: (0, 3, 4, 7, 10, 15)}
NUM_ALONE = {2: 1, 3: 3}
"""Prompts by the number of ranks. A fleet of two is asked more: tests/fleet/test_rank_groups.py."""
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def smollm2() -> ModelCard:
    return ModelStore().resolve("smollm2")


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_greedy_tokens_of_smollm2_are_those_of_transformers(
    num_ranks: int, smollm2: ModelCard
) -> None:
    """All at once, and one by one over what is cached by then; of prompts that are computed one by
    one every pair of groups is asked. Those of one rank are compared wherever an engine is."""
    reference = Reference()
    prompts = [reference.prompts[index] for index in ASKED[num_ranks]]
    expected = [reference.answers[index] for index in ASKED[num_ranks]]
    spec = spec_of(smollm2, num_ranks, max_context_tokens=640, prefix_cache=True)
    spawner = SeenSpawner()
    with running(spec, spawner) as replica:
        engine = Engine(replica, spec.options)
        assert answers_of(engine, prompts, NUM_NEW_TOKENS) == expected
        for prompt, answer in list(zip(prompts, expected, strict=True))[: NUM_ALONE[num_ranks]]:
            assert answers_of(engine, [prompt], NUM_NEW_TOKENS) == [answer]
        assert engine.check_invariants() == []
        assert_each_rank_says_which_heads_it_keeps(replica, spawner, num_ranks)
    assert not any(psutil.pid_exists(rank.pid) for rank in spawner.ranks.values())


HEADS: dict[int, list[tuple[int, ...]]] = {2: [(0,), (1, 2)], 3: [(0,), (1,), (2,)]}


def assert_each_rank_says_which_heads_it_keeps(
    replica: Replica, spawner: SeenSpawner, num_ranks: int
) -> None:
    """All have the same blocks."""
    assert replica.others is not None
    facts = replica.others.facts
    assert [each.rank for each in facts] == list(range(num_ranks))
    assert [each.kv_heads for each in facts] == HEADS[num_ranks]
    pids = [os.getpid(), *(spawner.ranks[rank].pid for rank in range(1, num_ranks))]
    assert [each.pid for each in facts] == pids
    assert len({each.generation for each in facts}) == 1
    own_head_bytes = replica.kv.nbytes // len(HEADS[num_ranks][0])
    assert [each.kv_bytes for each in facts] == [
        own_head_bytes * len(heads) for heads in HEADS[num_ranks]
    ]
    assert all(each.weight_bytes > 0 for each in facts)
    assert {child.pid for child in psutil.Process().children()} >= set(pids[1:])


@pytest.mark.parametrize("num_ranks, groups", [(2, 1), (2, 2), (4, 4), (4, 2)])
def test_a_mixture_s_experts_are_dealt_out_and_its_tokens_stay(
    num_ranks: int, groups: int, tmp_path: Path
) -> None:
    model = random_model("MixtralForCausalLM", num_local_experts=4)
    card = saved_card(model, tmp_path)
    prompts = random_prompts((5, 17, 40), card.config.vocab_size)
    limits = {"max_context_tokens": 96, "kv_memory_bytes": 8 << 20}
    alone = greedy_tokens(spec_of(card, 1, **limits), prompts, 12)
    shared = spec_of(card, num_ranks, expert_parallel_size=groups, **limits)
    assert greedy_tokens(shared, prompts, 12) == alone


@pytest.mark.parametrize("exchange", ["gather", "all-to-all"])
@pytest.mark.parametrize("num_ranks, groups", [(2, 2), (4, 2)])
def test_a_mixture_s_experts_move_while_it_answers_and_its_tokens_stay(
    num_ranks: int, groups: int, exchange: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebalancer, "LEAST_PICKS", 1)  # a random model's loads differ by chance
    monkeypatch.setattr(rebalancer, "FIRST_TRY_S", 0.01)
    card = saved_card(random_model("MixtralForCausalLM", num_local_experts=8), tmp_path)
    prompts = random_prompts((5, 17, 40), card.config.vocab_size)
    limits = {"max_context_tokens": 192, "kv_memory_bytes": 8 << 20}
    alone = greedy_tokens(spec_of(card, 1, **limits), prompts, 100)
    spec = spec_of(
        card,
        num_ranks,
        expert_parallel_size=groups,
        expert_exchange=exchange,
        expert_rebalance_interval_s=0.1,
        **limits,
    )
    with running(spec) as replica:
        engine, said = Engine(replica, spec.options), Frame()
        while said.experts is None or said.experts.num_rebalances < 3:
            assert answers_of(engine, prompts, 100) == alone
            replica.group_turn.enrich(said)
        assert said.experts.num_failures == 0


def test_two_choices_of_one_prompt_go_on_from_copies_at_every_rank(tmp_path: Path) -> None:
    card = saved_card(random_model("LlamaForCausalLM"), tmp_path)
    (prompt,) = random_prompts((37,), card.config.vocab_size)
    request = greedy_request("two", prompt, 12)
    sampling = SamplingParams(
        max_tokens=12, temperature=1.0, seed=3, n=2, ignore_eos=True, logprobs=1
    )
    request = structs.replace(request, sampling=sampling)
    found: list[list[list[GeneratedToken]]] = []
    for num_ranks in (1, 2):
        spec = spec_of(card, num_ranks, max_context_tokens=96, kv_memory_bytes=8 << 20)
        with running(spec) as replica:
            (completion,) = generate(Engine(replica, spec.options), [request])
            found.append([completion.tokens[choice] for choice in range(2)])
    for alone, shared in zip(*found, strict=True):
        assert [token.token_id for token in shared] == [token.token_id for token in alone]
        logprobs = [token.logprob for token in alone]
        assert [token.logprob for token in shared] == pytest.approx(logprobs, abs=1e-3)
    assert found[0][0][1:] != found[0][1][1:]
