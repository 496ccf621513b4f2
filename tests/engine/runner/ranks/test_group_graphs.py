"""Ranks that replay their decode steps: each captures and replays by itself, and they never part.

The ranks are threads; the graphs are of the kind that runs its work again. What each did is written
down: captures and replays by number, and the shapes of its collectives.
"""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from cluster.models.card import ModelCard
from cluster.sharding import Rank
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from engine.model.ragged_batch import RaggedBatch
from engine.model.rank_place import RankPlace
from engine.runner.cuda_runner import CudaRunner, GraphLimits, graph_sizes
from engine.runner.model_runner import DecoderRunner
from engine.runner.ranks.group import RankGroup
from engine.runner.ranks.group_runner import GroupRunner
from engine.runner.ranks.rank_turns import RankTurns
from kernels.tape.collective import Collective
from ranks.plans.plan import Part, PlanKind, RankPlan, joined
from tests.engine.model.family_models import random_model, saved_card
from tests.engine.model.parity import CLOSE
from tests.engine.model.rank_decoders import rank_split
from tests.engine.model.tiny_llama import BLOCK_SIZE, ragged_batch
from tests.kernels.ranks import LIMIT_S, ThreadRank, run_ranks

MAX_SEQS = 5
NUM_BLOCKS = 12
SIZES = graph_sizes(MAX_SEQS)
Log = list[tuple[object, ...]]


class NotedRank:
    """A Collective that writes down what it is asked for."""

    def __init__(self, rank: ThreadRank, log: Log) -> None:
        self._rank, self._log = rank, log
        self.world_size = rank.world_size

    def all_reduce(self, rows: torch.Tensor) -> None:
        """See Collective."""
        self._log.append(("reduce", *rows.shape))
        self._rank.all_reduce(rows)

    def all_gather(self, rows: torch.Tensor) -> torch.Tensor:
        """See Collective."""
        self._log.append(("gather", *rows.shape))
        return self._rank.all_gather(rows)

    def wait_until_landed(self) -> None:
        """See Collective: it has."""

    def gather(self, rows: torch.Tensor, root: int) -> torch.Tensor:
        """See Collective: as NCCL does it, where every rank gets them."""
        return self.all_gather(rows)


class NotedGraphs:
    """A GraphBackend that runs the work again, and writes that down."""

    def __init__(self, log: Log) -> None:
        self._log, self._num_captured = log, 0

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """See GraphBackend."""
        number, self._num_captured = self._num_captured, self._num_captured + 1
        self._log.append(("capture", number))
        work()

        def replay() -> None:
            self._log.append(("replay", number))
            work()

        return replay


class Plans:
    """A group's ring, and as much of its conductor as a step needs."""

    def __init__(self, num_others: int) -> None:
        self.queues = [queue.Queue[RankPlan]() for _ in range(num_others)]

    def publish(self, step: Sequence[Part]) -> None:
        """See RankGroup."""
        self.send(PlanKind.STEP, *step)

    def send(self, kind: PlanKind, *parts: Part) -> None:
        """See PlanWriter."""
        for each in self.queues:
            each.put(RankPlan(kind, memoryview(bytearray(joined(parts) if parts else b""))))

    def land(self) -> None:
        """See RankGroup."""

    def loss_after(self, error: Exception) -> Exception:
        """See RankGroup."""
        return error

    def reader(self, index: int) -> Any:
        """A PlanReader."""
        plans = self.queues[index]
        return SimpleNamespace(next=lambda timeout_s, **_: plans.get(timeout=LIMIT_S))


def own_runner(card: ModelCard, index: int, rank: ThreadRank, log: Log) -> CudaRunner:
    """That rank's, with its part of the model and of the pool."""
    collective: Collective = NotedRank(rank, log)
    split = rank_split(card, Rank(index, rank.world_size))
    place = RankPlace(split=split, collective=collective)
    decoder = Decoder.load(card, torch.float32, "cpu", place=place)
    layout = KvLayout.of_part(split, BLOCK_SIZE, torch.float32)
    return CudaRunner(
        decoder,
        KvPool(layout, NUM_BLOCKS + 1, "cpu"),
        limits=GraphLimits(max_num_seqs=MAX_SEQS, max_context_tokens=16),
        backend=NotedGraphs(log),
        progress=lambda phase, fraction: None,
    )


def steps_of_ranks(
    card: ModelCard, num_ranks: int, batches: Sequence[RaggedBatch]
) -> tuple[list[torch.Tensor], list[Log]]:
    """The logits that the conductor has of each batch, and what each rank has done."""
    plans = Plans(num_ranks - 1)
    logs: list[Log] = [[] for _ in range(num_ranks)]

    def conduct(own: CudaRunner) -> list[torch.Tensor]:
        runner = GroupRunner(own, cast(RankGroup, plans))
        logits = [runner.forward(batch).clone() for batch in batches]
        plans.send(PlanKind.STOP)
        return logits

    def follow(own: CudaRunner, index: int) -> list[torch.Tensor]:
        ties = cast(Any, SimpleNamespace(waited_s=0.0, called_s=0.0, busy=False))
        turns = RankTurns(plans.reader(index - 1), ties, own, extension=ties, experts=ties)
        while turns.take():
            pass
        return []

    def work(index: int, rank: ThreadRank) -> list[torch.Tensor]:
        own = own_runner(card, index, rank, logs[index])
        return follow(own, index) if index else conduct(own)

    return run_ranks(num_ranks, work)[0], logs


def steps_alone(card: ModelCard, batches: Sequence[RaggedBatch]) -> list[torch.Tensor]:
    """As one process has them, without graphs."""
    decoder = Decoder.load(card, torch.float32, "cpu")
    layout = KvLayout.of(card.config, BLOCK_SIZE, torch.float32)
    runner = DecoderRunner(decoder, KvPool(layout, NUM_BLOCKS, "cpu"))
    return [runner.forward(batch).clone() for batch in batches]


@pytest.fixture(scope="module", params=["LlamaForCausalLM", "MixtralForCausalLM"])
def card(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelCard:
    model = random_model(request.param)
    return saved_card(model, tmp_path_factory.mktemp(request.param))


PROMPTS = [
    ragged_batch([([5, 9, 2, 7, 1], 0, [3, 1])]),
    ragged_batch([([8, 4, 6], 0, [7]), ([11, 3], 0, [2])]),
]
ONE = ragged_batch([([12], 5, [3, 1])])
THREE = ragged_batch([([13], 6, [3, 1]), ([14], 3, [7]), ([15], 2, [2])])
MIXED = ragged_batch([([16], 7, [3, 1]), ([17, 18, 19], 0, [9])])
SIX = ragged_batch([([20 + at], 0, [at]) for at in range(4, 10)])


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_ranks_capture_and_replay_side_by_side_and_answer_as_one_does(
    num_ranks: int, card: ModelCard
) -> None:
    batches = [*PROMPTS, ONE, THREE, MIXED]
    found, logs = steps_of_ranks(card, num_ranks, batches)
    for ours, expected in zip(found, steps_alone(card, batches), strict=True):
        torch.testing.assert_close(ours, expected, **CLOSE)
    assert all(log == logs[0] for log in logs[1:])
    graphs = [done for done in logs[0] if done[0] in ("capture", "replay")]
    captures = [("capture", number) for number in range(len(SIZES))]
    assert graphs == [*captures, ("replay", SIZES[::-1].index(1)), ("replay", SIZES[::-1].index(4))]


def test_every_collective_of_a_size_is_inside_its_graph(card: ModelCard) -> None:
    _, (log, _) = steps_of_ranks(card, 2, [ONE])
    at = [index for index, done in enumerate(log) if done[0] in ("capture", "replay")]
    per_graph = [log[first + 1 : end] for first, end in itertools.pairwise([*at, len(log)])]
    sizes = [*SIZES[::-1], 1]
    reductions = 1 + 2 * card.config.num_layers
    for size, calls in zip(sizes, per_graph, strict=True):
        assert [name for name, *_ in calls] == ["reduce"] * reductions + ["gather"]
        assert {rows for _, rows, _ in calls} == {size}


def test_a_batch_beyond_the_largest_size_is_replayed_at_no_rank(card: ModelCard) -> None:
    (found,), logs = steps_of_ranks(card, 2, [SIX])
    torch.testing.assert_close(found, steps_alone(card, [SIX])[0], **CLOSE)
    assert all("replay" not in [name for name, *_ in log] for log in logs)


def test_who_has_let_go_of_its_graphs_computes_decodes_one_by_one(card: ModelCard) -> None:
    log: Log = []

    def work(index: int, rank: ThreadRank) -> tuple[torch.Tensor, torch.Tensor]:
        own = own_runner(card, index, rank, log if index == 0 else [])
        replayed = own.forward(ONE).clone()
        log.clear()
        own.close()
        own.close()
        return replayed, own.forward(ONE)

    replayed, computed = run_ranks(2, work)[0]
    torch.testing.assert_close(computed, replayed, **CLOSE)
    assert log and all(name != "replay" for name, *_ in log)
