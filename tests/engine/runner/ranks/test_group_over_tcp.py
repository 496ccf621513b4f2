"""Ranks that have no memory in common: the same answers, and the same end of a lost one."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from cluster.errors import ChecksumMismatch
from cluster.models.card import ModelCard
from engine.contract.spec import EngineSpec
from engine.runner.ranks import forming
from engine.step.engine import Engine
from ranks.collectives.rendezvous import CollectiveKind
from ranks.launch import RankLaunch
from ranks.processes import LocalRank
from tests.engine.model.family_models import VOCAB, random_model, saved_card
from tests.engine.model.parity import random_prompts
from tests.engine.runner.ranks.groups import (
    ForkingSpawner,
    SeenSpawner,
    answers_of,
    greedy_tokens,
    running,
    spec_of,
)
from tests.engine.runner.ranks.test_lost_ranks import (
    LIMITS,
    assert_nothing_left,
    heard_by,
    idle_until_lost,
    step_until_lost,
    times_told_of_waiting,
)

pytestmark = pytest.mark.timeout(300)
PROMPTS = random_prompts((31, 14, 1, 60), VOCAB)


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> ModelCard:
    return saved_card(random_model("LlamaForCausalLM"), tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def meet_over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ranks of several hosts do."""
    monkeypatch.setattr(forming, "choose_kind", lambda *_, **__: CollectiveKind.GLOO)


def test_three_ranks_over_tcp_give_the_tokens_of_one(card: ModelCard) -> None:
    alone = greedy_tokens(spec_of(card, 1, **LIMITS), PROMPTS, 12)
    spawner = ForkingSpawner()
    spec = spec_of(card, 3, **LIMITS)
    with running(spec, spawner) as replica:
        assert replica.others is not None
        replica.others.tell(b"a word between steps")
        assert answers_of(Engine(replica, spec.options), PROMPTS, 12) == alone
        assert heard_by(replica) == [(1, b"a word between steps"), (2, b"a word between steps")]
        assert [each.rank for each in replica.others.facts] == [0, 1, 2]
    assert_nothing_left(spawner)


class OnAnotherHost(ForkingSpawner):
    """Its ranks look for the model themselves, of which the conductor says another digest."""

    def start(self, launch: RankLaunch) -> LocalRank:
        assert launch.is_beside_conductor
        spec = EngineSpec.unpack(launch.spec)
        other = structs.replace(spec, card=replace(spec.card, weights_digest="0" * 64))
        return super().start(structs.replace(launch, spec=other.pack(), is_beside_conductor=False))


def test_a_rank_that_finds_other_weights_ends_the_start_and_says_so(card: ModelCard) -> None:
    (Path(card.source) / "tokenizer.json").write_text("{}")
    spawner = OnAnotherHost()
    with (
        pytest.raises(ChecksumMismatch, match="rank 1 failed: on .* has other weights"),
        running(spec_of(card, 2, **LIMITS), spawner),
    ):
        raise AssertionError("the group was formed")
    assert_nothing_left(spawner)


@pytest.mark.parametrize(
    ("how", "ending"), [(signal.SIGKILL, "signal SIGKILL"), (signal.SIGSTOP, "stood still")]
)
def test_a_rank_that_is_lost_over_tcp_is_named_with_its_end(
    how: signal.Signals, ending: str, card: ModelCard
) -> None:
    spawner = SeenSpawner()
    spec = spec_of(card, 2, **LIMITS)
    with running(spec, spawner) as replica:
        engine = Engine(replica, spec.options)

        def hurt(number: int) -> None:
            if number == 3:
                os.kill(spawner.ranks[1].pid, how)

        lost = step_until_lost(engine, hurt)
    assert (lost.ranks, lost.ending) == ((1,), ending)
    assert_nothing_left(spawner)


def test_that_the_conductor_waits_for_a_rank_over_tcp_is_told_beside_it(card: ModelCard) -> None:
    """And by nobody as a turn, so that a step that never ends has its limit."""
    assert times_told_of_waiting(spec_of(card, 2, **LIMITS)) > 0


def test_an_idle_rank_over_tcp_that_stops_is_noticed(card: ModelCard) -> None:
    spawner = ForkingSpawner()
    with running(spec_of(card, 2, **LIMITS), spawner) as replica:
        os.kill(spawner.ranks[1].pid, signal.SIGSTOP)
        lost = idle_until_lost(replica)
    assert (lost.ranks, lost.ending) == ((1,), "stood still")
    assert_nothing_left(spawner)


def test_a_rank_over_tcp_whose_loop_stands_still_between_steps_is_noticed(card: ModelCard) -> None:
    """Though its process lives, and a thread of it beats."""
    spawner = ForkingSpawner()
    with running(spec_of(card, 2, **LIMITS), spawner) as replica:
        assert replica.others is not None
        replica.others.tell(b"hang")
        lost = idle_until_lost(replica)
    assert (lost.ranks, lost.ending) == ((1,), "stood still")
    assert_nothing_left(spawner)
