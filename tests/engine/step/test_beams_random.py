"""Random lives of beam searches beside other requests, here and from a prefill engine."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cluster.beam_search import BeamSearch, EarlyStopping
from engine.contract.commands import GenerateRequest, PrefillMode, Submit
from engine.offline.queue import Completion
from tests.engine.runner.lazy_runner import lazy_replica
from tests.engine.step.engine_scenario import small_replica
from tests.engine.step.test_beams import END, answers_of, expected, search
from tests.engine.step.test_engine_random import World, compare, end_all

STOPS = tuple(EarlyStopping)


class BeamWorld(World):
    """Half of the requests search; there are never blocks enough for all."""

    def make_replicas(self) -> None:
        """Of twelve blocks where searches are, of eight where prompts are computed."""
        self.replicas = [small_replica(8), small_replica(12)]

    def options(self) -> dict[str, Any]:
        """Seats for more than there are blocks for."""
        return {"max_num_seqs": 8}

    def submit(self) -> None:
        """A search, or what the plain world submits."""
        if self.chance.random() < 0.5:
            super().submit()
            return
        body = self.search()
        self.bodies[body.request_id] = body
        self.completions[body.request_id] = Completion()
        self.decode.apply(Submit(body))

    def search(self) -> GenerateRequest:
        """Over prompts of two tokens, of width two or three."""
        chance = self.chance
        width = chance.choice([2, 2, 3])
        return search(
            str(len(self.bodies)),
            [chance.randrange(2) for _ in range(chance.randrange(1, 8))],
            width=width,
            n=chance.randrange(1, width + 1),
            max_tokens=chance.randrange(1, 6),
            stop_token_ids=chance.choice([(END,), ()]),
            length_penalty=chance.choice([0.0, 1.0, 1.5]),
            early_stopping=chance.choice(STOPS),
            mode=chance.choice([PrefillMode.LOCAL, PrefillMode.REMOTE]),
            timeout_ms=chance.choice([1e6, 1e6, 20.0]),
        )

    def end(self) -> int:
        """Everything that is under way ends rightly; returns how many searches found what they had
        to."""
        end_all(self)
        num_right = 0
        for name, body in self.bodies.items():
            if body.sampling.beams is None:
                compare(body, self.completions[name], self.finished_choices(name))
            else:
                num_right += _is_right(body, body.sampling.beams, self.completions[name])
        assert self.decode.table.num_searches == 0
        return num_right


def _is_right(body: GenerateRequest, beams: BeamSearch, completion: Completion) -> bool:
    """False: it was ended, and nothing of it was told."""
    assert completion.ended is not None
    code = completion.ended.error_code
    assert code in ("", "cancelled", "deadline_exceeded", "out_of_blocks")
    ours = [tokens for tokens, _ in answers_of(completion, beams.length_penalty)]
    assert ours == ([] if code else [tokens for tokens, _ in expected(body)])
    return not code


@pytest.mark.parametrize("seed", range(40))
def test_random_lives_of_searches_end_rightly_and_leak_no_block(seed: int) -> None:
    world = BeamWorld(random.Random(seed))
    world.live(150)
    world.end()


class LazyBeamWorld(BeamWorld):
    """Where searches are, other decodes are launched before the tokens of the last step are read;
    reads go past the device."""

    def make_replicas(self) -> None:
        """As many blocks as in the world of beams."""
        made = [lazy_replica(8), lazy_replica(12)]
        self.replicas = [replica for replica, _ in made]
        self.runners = [runner for _, runner in made]


def test_searches_beside_steps_that_run_ahead_end_rightly() -> None:
    num_right = num_launched = 0
    for seed in range(12):
        world = LazyBeamWorld(random.Random(seed))
        world.live(150)
        num_right += world.end()
        num_launched += world.runners[1].num_launched
    assert num_right > 12
    assert num_launched > 20


def test_random_lives_have_searches_that_end_well_and_some_that_are_preempted() -> None:
    num_right = num_preempted = 0
    for seed in range(20):
        world = BeamWorld(random.Random(1000 + seed))
        world.live(150)
        num_right += world.end()
        num_preempted += world.decode._meter.num_preemptions
    assert num_right > 30
    assert num_preempted > 3
