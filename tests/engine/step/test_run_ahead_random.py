"""Random worlds on a lazy device: as with an engine that waits, to the last token and block."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from cluster.sampling import SamplingParams
from engine.contract.commands import Cancel, Finish, GenerateRequest, Submit
from engine.offline.queue import Completion, collect
from engine.step.engine import Engine
from tests.engine.runner.lazy_runner import LazyRunner, lazy_replica
from tests.engine.step.engine_scenario import (
    ROOT,
    VOCAB_SIZE,
    VirtualClock,
    check,
    run_until_ended,
    small_engine,
    small_replica,
)
from tests.engine.step.test_engine_random import World, end_and_compare

EOS = (0,)
NUM_BLOCKS = 16


@dataclass
class LazyWorld(World):
    """Both engines on devices that do nothing before somebody waits; reads go past them."""

    def make_replicas(self) -> None:
        """Of eight blocks each, as in the plain world."""
        made = [lazy_replica(8), lazy_replica(8)]
        self.replicas = [replica for replica, _ in made]
        self.runners = [runner for _, runner in made]


@pytest.mark.parametrize("seed", range(16))
def test_handoffs_to_a_lazy_device_end_every_request_rightly_and_leak_no_block(seed: int) -> None:
    world = LazyWorld(random.Random(seed))
    world.live(120)
    end_and_compare(world)


def test_random_handoffs_are_decoded_ahead_of_their_tokens() -> None:
    num_launched = 0
    for seed in range(4):
        world = LazyWorld(random.Random(seed))
        world.live(120)
        end_and_compare(world)
        num_launched += world.runners[1].num_launched
    assert num_launched > 20


def random_body(chance: random.Random, name: str) -> GenerateRequest:
    """Mostly simple; a few need the host for every token, or for the first ones."""
    return GenerateRequest(
        request_id=name,
        token_ids=[chance.randrange(2) for _ in range(chance.randrange(1, 8))],
        sampling=SamplingParams(
            max_tokens=chance.randrange(1, 16),
            n=chance.choice([1, 1, 1, 2, 3]),
            seed=chance.randrange(9),
            temperature=chance.choice([0.0, 1.0, 1.8]),
            top_k=chance.choice([0, 0, 4]),
            top_p=chance.choice([1.0, 0.8]),
            min_tokens=chance.choice([0, 0, 0, 1]),
            stop_token_ids=chance.choice([(), (), (), (3,)]),
            presence_penalty=0.5 * (chance.random() < 0.05),
            ignore_eos=chance.random() < 0.7,
        ),
        cache_root=ROOT,
        timeout_ms=chance.choice([1e6, 1e6, 1e6, 25.0]),
    )


class Life:
    """Requests that come, are cancelled and finished at random steps of one engine."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.clock = VirtualClock()
        replica, self.runner = lazy_replica(NUM_BLOCKS, EOS)
        self.engine = small_engine(
            replica,
            clock=self.clock,
            max_batch_tokens=chance.choice([4, 16]),
            max_num_seqs=chance.choice([2, 4, 8]),
            prefix_cache=chance.random() < 0.7,
        )
        self.bodies: dict[str, GenerateRequest] = {}
        self.completions: dict[str, Completion] = {}
        self.disturbed: set[str] = set()

    def live(self, num_turns: int) -> None:
        """As many turns, with a step in most of them."""
        for _ in range(num_turns):
            if len(self.bodies) < 9 and self.chance.random() < 0.1:
                self.submit()
            if self.bodies and self.chance.random() < 0.04:
                self.disturb()
            if self.chance.random() < 0.9:
                self.step()

    def submit(self) -> None:
        """One more."""
        body = random_body(self.chance, str(len(self.bodies)))
        self.bodies[body.request_id] = body
        self.completions[body.request_id] = Completion()
        self.engine.apply(Submit(body))
        check(self.engine)

    def disturb(self) -> None:
        """Somebody has seen enough."""
        name = self.chance.choice(list(self.bodies))
        self.disturbed.add(name)
        finish = Finish(name, [self.chance.randrange(self.bodies[name].sampling.n)])
        self.engine.apply(self.chance.choice([Cancel(name), finish]))
        check(self.engine)

    def step(self) -> None:
        """And the invariants after it."""
        self.clock.now_s += 0.001
        collect(self.engine.step(), self.completions)
        check(self.engine)

    def end(self) -> None:
        """Until nothing is left to do."""
        for _ in range(300):
            if not self.engine.has_work:
                break
            self.step()
        assert all(completion.ended for completion in self.completions.values())
        assert self.engine.is_idle
        assert self.engine.placement.pool.leases == frozenset()
        assert self.engine.placement.pool.num_available == NUM_BLOCKS


def alone(body: GenerateRequest) -> Completion:
    """What an engine that waits gives for it."""
    engine: Engine = small_engine(small_replica(64, EOS), max_batch_tokens=64, max_num_seqs=16)
    engine.apply(Submit(body))
    completion: Completion = run_until_ended(engine, [body.request_id])[body.request_id]
    return completion


def compare(body: GenerateRequest, found: Completion, *, is_whole: bool) -> None:
    """The same tokens and reasons; no more than a beginning where somebody interfered."""
    expected = alone(body)
    for choice in range(body.sampling.n):
        given = found.token_ids(choice)
        assert given == expected.token_ids(choice)[: len(given)]
        assert all(0 <= token < VOCAB_SIZE for token in given)
    if is_whole:
        assert found.tokens == expected.tokens
        assert found.finish_reasons == expected.finish_reasons
        assert found.ended is not None
        assert expected.ended is not None
        assert found.ended.usage.completion_tokens == expected.ended.usage.completion_tokens


@pytest.mark.parametrize("seed", range(30))
def test_random_requests_get_the_tokens_of_an_engine_that_waits(seed: int) -> None:
    life = Life(random.Random(seed))
    life.live(150)
    life.end()
    for name, body in life.bodies.items():
        found = life.completions[name]
        assert found.ended is not None
        assert found.ended.error_code in ("", "cancelled", "deadline_exceeded")
        is_whole = not found.ended.error_code and name not in life.disturbed
        compare(body, found, is_whole=is_whole)


def test_random_lives_run_ahead() -> None:
    steps = 0
    for seed in range(8):
        life = Life(random.Random(seed))
        life.live(80)
        steps += num_ahead(life.runner)
    assert steps > 100


def num_ahead(runner: LazyRunner) -> int:
    """Steps that were launched while another was unread."""
    unread, found = 0, 0
    for line in runner.log:
        found += line.startswith("launch") and unread > 0
        unread += line.startswith("launch") - line.startswith("read")
    return found
