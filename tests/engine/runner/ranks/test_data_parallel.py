"""A mixture in processes that share its routed experts alone answers as one process does."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from msgspec import structs

from cluster.models.card import ModelCard
from cluster.sampling import SamplingParams
from engine.contract.commands import Submit
from engine.contract.messages import Frame
from engine.contract.spec import EngineSpec
from engine.model.experts import rebalancer
from engine.model.load_phases import silent
from engine.offline.queue import generate
from engine.offline.replica import greedy_request
from engine.runner.ranks import forming
from engine.runner.replica import load_replica
from engine.step.engine import Engine
from ranks.collectives.call_wait import call_limit_s
from ranks.collectives.rendezvous import CollectiveKind
from tests.engine.model.mixture_cards import card_of
from tests.engine.model.parity import random_prompts
from tests.engine.runner.ranks.groups import (
    LIMIT_S,
    ForkingSpawner,
    answers_of,
    greedy_tokens,
    running,
    spec_of,
)
from tests.engine.runner.ranks.test_lost_ranks import assert_nothing_left, step_until_lost

NUM_TOKENS = 12
KV_BYTES = 1 << 20
LENGTHS = (31, 14, 1, 40, 5, 17, 22, 9, 3, 28, 12, 36, 7, 19, 2, 25)
pytestmark = pytest.mark.timeout(300)


def spec_in(card: ModelCard, num_ranks: int, **options: object) -> EngineSpec:
    """Of one rank: the replica to compare with."""
    limits = {"max_context_tokens": 96, "kv_memory_bytes": KV_BYTES} | options
    return spec_of(card, num_ranks, data_parallel_attention=num_ranks > 1, **limits)


@pytest.mark.parametrize(
    ("family", "num_ranks", "groups"), [("mixtral", 2, None), ("v3", 2, None), ("v3", 4, 2)]
)
def test_tokens_are_those_of_one_rank_alone_and_sixteen_at_once(
    family: str, num_ranks: int, groups: int | None, tmp_path: Path
) -> None:
    card = card_of(family, tmp_path)
    prompts = random_prompts(LENGTHS, card.config.vocab_size)
    expected = greedy_tokens(spec_in(card, 1), prompts, NUM_TOKENS)
    spec = spec_in(card, num_ranks, expert_parallel_size=groups)
    with running(spec) as replica:
        engine = Engine(replica, spec.options)
        assert replica.homes.num_homes == num_ranks
        assert answers_of(engine, prompts, NUM_TOKENS) == expected
        for prompt, answer in list(zip(prompts, expected, strict=True))[:4]:
            assert answers_of(engine, [prompt], NUM_TOKENS) == [answer]
        assert engine.check_invariants() == []
        assert every_rank_had_sequences(engine)


def every_rank_had_sequences(engine: Engine) -> bool:
    pool = engine.placement.pool
    homes = [pool.homes.ids_of(rank) for rank in range(pool.homes.num_homes)]
    return all(bool(pool.generations[home.start : home.stop].any()) for home in homes)


def test_ranks_over_tcp_give_the_tokens_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forming, "choose_kind", lambda *_, **__: CollectiveKind.GLOO)
    card = card_of("v3", tmp_path)
    prompts = random_prompts(LENGTHS[:4], card.config.vocab_size)
    expected = greedy_tokens(spec_in(card, 1), prompts, NUM_TOKENS)
    spec = spec_in(card, 3, prefix_cache=True)
    with running(spec) as replica:
        engine = Engine(replica, spec.options)
        for _ in range(2):  # of cached blocks the second time
            assert answers_of(engine, prompts, NUM_TOKENS) == expected
        assert every_rank_had_sequences(engine)


def test_each_rank_has_as_many_blocks_as_one_that_is_alone(tmp_path: Path) -> None:
    card = card_of("v3", tmp_path)
    alone = load_replica(spec_in(card, 1), silent)
    with running(spec_in(card, 2)) as replica:
        assert replica.homes.num_blocks == 2 * len(alone.kv)
        assert replica.others is not None
        assert [facts.kv_heads for facts in replica.others.facts] == [(0,), (0,)]
        assert replica.max_context_tokens == alone.max_context_tokens


def test_tokens_stay_where_ranks_take_blocks_from_their_youngest(tmp_path: Path) -> None:
    card = card_of("v3", tmp_path)
    prompts = random_prompts(LENGTHS, card.config.vocab_size)
    expected = greedy_tokens(spec_in(card, 1), prompts, 40)
    block_bytes = KV_BYTES // len(load_replica(spec_in(card, 1), silent).kv)
    spec = spec_in(card, 2, kv_memory_bytes=8 * block_bytes)  # an answer has 6 at most
    with running(spec) as replica:
        engine = Engine(replica, spec.options)
        assert answers_of(engine, prompts, 40) == expected
        assert engine.load.now().num_preemptions > 0
        assert engine.check_invariants() == []


def test_choices_go_on_from_copies_at_their_rank_and_prompts_are_scored_at_theirs(
    tmp_path: Path,
) -> None:
    card = card_of("v3", tmp_path)
    prompts = random_prompts((37, 21, 30), card.config.vocab_size)
    sampling = SamplingParams(max_tokens=12, temperature=1.0, seed=3, n=2, ignore_eos=True)
    requests = [
        structs.replace(greedy_request(f"r{at}", prompt, 12), sampling=sampling)
        for at, prompt in enumerate(prompts)
    ]
    scored = SamplingParams(max_tokens=3, temperature=0.0, prompt_logprobs=1, ignore_eos=True)
    requests += [
        structs.replace(greedy_request(f"s{at}", prompt, 3), sampling=scored)
        for at, prompt in enumerate(random_prompts((48, 33, 29, 41), card.config.vocab_size))
    ]
    found = []
    for num_ranks in (1, 2):
        spec = spec_in(card, num_ranks, prefix_cache=True)
        with running(spec) as replica:
            found.append(generate(Engine(replica, spec.options), requests))
    for alone, shared in zip(*found, strict=True):
        assert set(shared.tokens) == set(alone.tokens)
        for choice in alone.tokens:
            assert shared.token_ids(choice) == alone.token_ids(choice)
        assert [token.token_id for token in shared.prompt] == [t.token_id for t in alone.prompt]
        assert [token.logprob for token in shared.prompt] == pytest.approx(
            [token.logprob for token in alone.prompt], abs=1e-4
        )
    assert [len(each.prompt) for each in found[0]] == [0, 0, 0, 47, 32, 28, 40]


def test_experts_move_while_ranks_have_sequences_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebalancer, "LEAST_PICKS", 1)  # a random model's loads differ by chance
    monkeypatch.setattr(rebalancer, "FIRST_TRY_S", 0.01)
    card = card_of("v3", tmp_path)
    prompts = random_prompts(LENGTHS[:3], card.config.vocab_size)
    alone = greedy_tokens(spec_in(card, 1), prompts, 60)
    spec = spec_in(card, 2, expert_rebalance_interval_s=0.1)
    with running(spec) as replica:
        engine, said = Engine(replica, spec.options), Frame()
        while said.experts is None or said.experts.num_rebalances < 1:
            assert answers_of(engine, prompts, 60) == alone
            replica.group_turn.enrich(said)
        assert said.experts.num_failures == 0


def test_a_rank_that_is_stopped_while_it_alone_has_a_sequence_ends_the_group(
    tmp_path: Path,
) -> None:
    """The conductor computes a row of padding, and waits for it in the exchange."""
    spawner, spec = ForkingSpawner(), spec_in(card_of("v3", tmp_path), 2)
    stopped_s: list[float] = []
    with running(spec, spawner) as replica:
        engine = Engine(replica, spec.options)
        pool = engine.placement.pool
        engine.apply(Submit(greedy_request("short", [3, 1], 3)))  # the conductor's, for a while

        def hurt(_: int) -> None:
            used = [pool.homes.blocks_each - pool.available_at(rank) for rank in range(2)]
            if not stopped_s and used[1] and not used[0]:
                stopped_s.append(time.monotonic())
                os.kill(spawner.ranks[1].pid, signal.SIGSTOP)

        lost = step_until_lost(engine, hurt)
    assert (lost.ranks, lost.ending) == ((1,), "stood still")
    assert time.monotonic() - stopped_s[0] < LIMIT_S < call_limit_s(spec.options.step_timeout_s)
    assert_nothing_left(spawner)


def test_a_rank_that_is_lost_without_a_sequence_ends_the_group(tmp_path: Path) -> None:
    spawner, spec = ForkingSpawner(), spec_in(card_of("v3", tmp_path), 2)
    with running(spec, spawner) as replica:
        engine = Engine(replica, spec.options)

        def hurt(number: int) -> None:
            if number == 5:
                used = engine.placement.pool.generations.view(2, -1).any(1)
                assert used.tolist() == [True, False]  # the only request is the conductor's
                os.kill(spawner.ranks[1].pid, signal.SIGKILL)

        lost = step_until_lost(engine, hurt)
    assert (lost.ranks, lost.ending) == ((1,), "signal SIGKILL")
    assert_nothing_left(spawner)
