"""A rank that is killed, or stands still, ends its group: at once, with its name, and wholly."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from msgspec import structs

from cluster.errors import BadCheckpoint, ConfigError, RankLost
from cluster.models.card import ModelCard
from engine.contract.commands import Submit
from engine.contract.spec import EngineSpec
from engine.offline.replica import greedy_request
from engine.runner.model_runner import Replica
from engine.step.engine import Engine
from ranks.launch import RankLaunch
from ranks.processes import LocalRank
from tests.engine.model.family_models import random_model, saved_card
from tests.engine.model.parity import random_prompts
from tests.engine.runner.ranks.groups import (
    LIMIT_S,
    ForkingSpawner,
    SeenSpawner,
    answers_of,
    running,
    spec_of,
)

pytestmark = pytest.mark.timeout(300)
LIMITS = {"max_context_tokens": 96, "kv_memory_bytes": 8 << 20}


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> ModelCard:
    return saved_card(random_model("LlamaForCausalLM"), tmp_path_factory.mktemp("model"))


def step_until_lost(engine: Engine, after_step: Callable[[int], None]) -> RankLost:
    """Steps with work to do; `after_step` is called before each."""
    prompt = random_prompts((40,), 97)[0]
    engine.apply(Submit(greedy_request("r", prompt, 40)))
    with pytest.raises(RankLost) as lost:
        for number in range(200):
            after_step(number)
            engine.step()
    return lost.value


def idle_until_lost(replica: Replica) -> RankLost:
    """As the engine's loop does between requests."""
    assert replica.others is not None
    deadline_s = time.monotonic() + LIMIT_S
    with pytest.raises(RankLost) as lost:
        while time.monotonic() < deadline_s:
            replica.others.check()
    return lost.value


def heard_by(replica: Replica) -> list[tuple[int, bytes]]:
    """What the extensions of both other ranks of three have answered, by rank."""
    assert replica.others is not None
    found: list[tuple[int, bytes]] = []
    deadline_s = time.monotonic() + LIMIT_S
    while len(found) < 2 and time.monotonic() < deadline_s:
        found += replica.others.hear()
    return sorted(found)


def assert_nothing_left(spawner: SeenSpawner) -> None:
    assert not any(psutil.pid_exists(rank.pid) for rank in spawner.ranks.values())
    held = [os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
    assert [name for name in held if "splitserve-" in name] == []


@pytest.mark.parametrize(
    ("how", "ending"), [(signal.SIGKILL, "signal SIGKILL"), (signal.SIGSTOP, "stood still")]
)
@pytest.mark.parametrize("at_step", [0, 5])
def test_a_rank_that_is_lost_in_a_step_is_named_with_its_end(
    how: signal.Signals, ending: str, at_step: int, card: ModelCard
) -> None:
    spawner = ForkingSpawner()
    spec = spec_of(card, 2, **LIMITS)
    with running(spec, spawner) as replica:
        engine = Engine(replica, spec.options)

        def hurt(number: int) -> None:
            if number == at_step:
                os.kill(spawner.ranks[1].pid, how)

        lost = step_until_lost(engine, hurt)
    assert (lost.ranks, lost.ending) == ((1,), ending)
    assert "rank 1 of generation" in lost.message
    assert_nothing_left(spawner)


@pytest.mark.parametrize(
    ("how", "ending"), [(signal.SIGKILL, "signal SIGKILL"), (signal.SIGSTOP, "stood still")]
)
def test_an_idle_engine_notices_the_one_of_its_ranks_that_is_lost(
    how: signal.Signals, ending: str, card: ModelCard
) -> None:
    """Of three: the others wait for it, and are not to blame."""
    spawner = SeenSpawner()
    with running(spec_of(card, 3, **LIMITS), spawner) as replica:
        os.kill(spawner.ranks[2].pid, how)
        lost = idle_until_lost(replica)
    assert (lost.ranks, lost.ending) == ((2,), ending)
    assert_nothing_left(spawner)


def test_extensions_greet_hear_and_answer_and_one_that_fails_ends_the_group(
    card: ModelCard,
) -> None:
    spawner = ForkingSpawner()
    with running(spec_of(card, 3, **LIMITS), spawner) as replica:
        assert replica.others is not None
        greetings = {1: b"rank 1 keeps [0]", 2: b"rank 2 keeps [1]"}
        assert replica.others.greetings == greetings
        long = bytes(range(256)) * 20_000  # goes in pieces
        replica.others.tell(long)
        assert heard_by(replica) == [(1, long), (2, long)]
        replica.others.tell(b"fail")
        lost = idle_until_lost(replica)
    assert "failed: ValueError: told to fail" in lost.message
    assert_nothing_left(spawner)


def times_told_of_waiting(spec: EngineSpec) -> int:
    """By the conductor's watch, in a step that ends well, for a rank that works before it."""
    told: list[None] = []
    with running(spec) as replica:
        assert replica.others is not None
        replica.others.on_wait(lambda: told.append(None))
        replica.others.tell(b"work")
        assert answers_of(Engine(replica, spec.options), random_prompts((20,), 97), 2)
    return len(told)


def test_that_the_conductor_waits_for_a_rank_that_lives_is_told_beside_it(card: ModelCard) -> None:
    assert times_told_of_waiting(spec_of(card, 2, **LIMITS)) > 0


class EarlyEnd(SeenSpawner):
    """Its ranks are killed as soon as they are there."""

    def start(self, launch: RankLaunch) -> LocalRank:
        """See Spawner."""
        rank = super().start(launch)
        rank.kill()
        return rank


def test_a_rank_that_does_not_even_arrive_ends_the_start(card: ModelCard) -> None:
    spawner = EarlyEnd()
    with (
        pytest.raises(RankLost, match=r"rank 1 of generation \d+ ended \(signal SIGKILL\)"),
        running(spec_of(card, 2, **LIMITS), spawner),
    ):
        pass
    assert_nothing_left(spawner)


class EarlyStop(SeenSpawner):
    """Its ranks are stopped as soon as they are there."""

    def start(self, launch: RankLaunch) -> LocalRank:
        """See Spawner."""
        rank = super().start(launch)
        os.kill(rank.pid, signal.SIGSTOP)
        return rank


def test_a_rank_that_is_stopped_while_it_starts_is_named_long_before_the_start_s_limit(
    card: ModelCard,
) -> None:
    spawner, began_s = EarlyStop(), time.monotonic()
    spec = spec_of(card, 2, start_timeout_s=3600.0, **LIMITS)
    with pytest.raises(RankLost, match="stood still for") as lost, running(spec, spawner):
        pass
    assert (lost.value.ranks, lost.value.ending) == ((1,), "stood still")
    assert time.monotonic() - began_s < LIMIT_S
    assert_nothing_left(spawner)


class OtherModel(ForkingSpawner):
    """Its ranks are told of weights that are not there."""

    def start(self, launch: RankLaunch) -> LocalRank:
        """See Spawner."""
        spec = EngineSpec.unpack(launch.spec)
        lost = dataclasses.replace(spec.card, weight_files=(Path("/nowhere.safetensors"),))
        told = structs.replace(spec, card=lost).pack()
        return super().start(structs.replace(launch, spec=told))


def test_what_a_rank_fails_with_while_it_loads_is_the_start_s_error(card: ModelCard) -> None:
    spawner = OtherModel()
    with (
        pytest.raises(BadCheckpoint, match=r"rank 1 failed: .*/nowhere\.safetensors"),
        running(spec_of(card, 2, **LIMITS), spawner),
    ):
        pass
    assert_nothing_left(spawner)


def test_a_module_that_is_no_rank_ends_the_start_with_its_last_lines(card: ModelCard) -> None:
    spawner = SeenSpawner("no.such.module")
    with (
        pytest.raises(RankLost, match="No module named") as lost,
        running(spec_of(card, 2, **LIMITS), spawner),
    ):
        pass
    assert lost.value.ending == "exit code 1"
    assert any("no" in line for line in lost.value.last_lines)


def test_more_ranks_than_heads_are_refused_with_the_number_that_fits(card: ModelCard) -> None:
    spawner = SeenSpawner()
    with (
        pytest.raises(ConfigError, match="use at most 4"),
        running(spec_of(card, 5, **LIMITS), spawner),
    ):
        pass
    assert_nothing_left(spawner)
