"""Groups of real processes, whose conductor is the test itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster.engine_options import EngineOptions
from cluster.identity import Role
from cluster.models.card import ModelCard
from engine.contract.spec import EngineSpec
from engine.offline.queue import generate
from engine.offline.replica import greedy_request
from engine.process.load_ranks import load_group
from engine.runner.model_runner import Replica
from engine.runner.replica import load_replica
from engine.step.engine import Engine
from ranks.processes import LocalRank, ProcessSpawner, RankChild
from tests.ranks.fork_client import fork_client

RANK_MODULE = "tests.engine.runner.ranks.echo_rank"
LIMIT_S = 60.0
"""For anything that is to come; generous, since machines are busy."""


def spec_of(card: ModelCard, num_ranks: int, **options: Any) -> EngineSpec:
    """In float32, on the CPU, one thread a rank."""
    given = {"device": "cpu", "num_threads": num_ranks, "prefix_cache": False} | options
    return EngineSpec(
        card=card,
        dtype="float32",
        role=Role.DECODE,
        worker_id="group",
        incarnation="group",
        options=EngineOptions(tensor_parallel_size=num_ranks, **given),
    )


class SeenSpawner(ProcessSpawner):
    """Remembers what it has started, so that tests can hurt it."""

    def __init__(
        self, entry_module: str = RANK_MODULE, *, gpus: tuple[str, ...] | None = None
    ) -> None:
        super().__init__(entry_module, gpus=gpus)
        self.ranks: dict[int, LocalRank] = {}

    def start(self, launch: Any) -> LocalRank:
        """See Spawner."""
        self.ranks[launch.rank] = rank = super().start(launch)
        return rank


class ForkingSpawner(SeenSpawner):
    """Its ranks need not import anything: for tests of what ranks do, not of how they start."""

    def _begin(self, entry_module: str, environ: Mapping[str, str]) -> RankChild:
        return fork_client().begin(entry_module, environ)


@contextlib.contextmanager
def running(spec: EngineSpec, spawner: ProcessSpawner | None = None) -> Iterator[Replica]:
    """The replica: alone where the spec says so, else with its others, which are ended.
    They are forks, unless a spawner is given."""
    if spec.options.tensor_parallel_size == 1:
        yield load_replica(spec, lambda phase, fraction: None)
        return
    replica = load_group(spec, lambda phase, fraction: None, spawner or ForkingSpawner())
    assert replica.others is not None
    with contextlib.closing(replica.others):
        yield replica


def greedy_tokens(
    spec: EngineSpec, prompts: Sequence[list[int]], num_tokens: int
) -> list[list[int]]:
    """Of all prompts at once."""
    with running(spec) as replica:
        return answers_of(Engine(replica, spec.options), prompts, num_tokens)


def answers_of(engine: Engine, prompts: Sequence[list[int]], num_tokens: int) -> list[list[int]]:
    requests = [greedy_request(f"r{at}", prompt, num_tokens) for at, prompt in enumerate(prompts)]
    return [completion.token_ids() for completion in generate(engine, requests)]
