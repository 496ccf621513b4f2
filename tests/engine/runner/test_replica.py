"""What computes a loaded part on a GPU: chosen here without one, for tensors on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs
from structlog.testing import capture_logs

from cluster.models.card import ModelCard
from cluster.sharding import Rank
from engine.contract.spec import DraftSpec
from engine.memory.memory_request import BesideNeeds
from engine.runner import replica as replica_module
from engine.runner import replica_size
from engine.runner.cuda_runner import CudaRunner, graph_sizes
from engine.runner.draft_model import DraftSize
from engine.runner.draft_shapes import MOST_ROWS
from engine.runner.model_runner import DecoderRunner
from engine.runner.portion import WHOLE_REPLICA, Portion
from engine.runner.replica import LoadedPart, _agreed, _drafting, load_part, runner_of
from engine.runner.replica_size import ReplicaSize
from engine.runner.warm_up import longest_prompts
from tests.engine.model.family_models import random_model, saved_card
from tests.engine.runner.ranks.groups import spec_of
from tests.engine.runner.rerun_graphs import RerunGraphs

MAX_SEQS = 3
Settle = Callable[[], None] | None


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> ModelCard:
    return saved_card(random_model("LlamaForCausalLM"), tmp_path_factory.mktemp("model"))


def part_of(card: ModelCard, portion: Portion | None = None, **options: Any) -> LoadedPart:
    """As a GPU's process has it, but that its tensors are on the CPU."""
    limits = {"max_context_tokens": 32, "kv_memory_bytes": 1 << 20, "max_num_seqs": MAX_SEQS}
    part = load_part(spec_of(card, 1, **limits, **options), lambda phase, fraction: None)
    size = replace(part.size, device=torch.device("cuda"))
    return replace(part, size=size if portion is None else replace(size, portion=portion))


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[Settle]:
    """By what each backend that is made waits for other ranks."""
    found: list[Settle] = []

    class NotedGraphs(RerunGraphs):
        def __init__(self, device: torch.device, settle: Settle = None) -> None:
            super().__init__()
            found.append(settle)

    monkeypatch.setattr(replica_module, "CudaGraphs", NotedGraphs)
    return found


def test_who_is_alone_captures_without_waiting_for_others(
    card: ModelCard, settled: list[Settle]
) -> None:
    phases: list[str] = []
    runner = runner_of(part_of(card), lambda phase, fraction: phases.append(phase))
    assert isinstance(runner, CudaRunner)
    assert settled == [None]
    assert len(phases) == len(graph_sizes(MAX_SEQS)) + 1


def test_a_rank_of_a_group_waits_for_the_others_before_each_recording(
    card: ModelCard, settled: list[Settle]
) -> None:
    portion = Portion(rank=Rank(0, 2))
    runner = runner_of(part_of(card, portion), lambda phase, fraction: None)
    assert isinstance(runner, CudaRunner)
    assert settled == [portion.settle]


def test_where_steps_are_not_replayed_the_log_says_why(
    card: ModelCard, settled: list[Settle]
) -> None:
    part = part_of(card, cuda_graphs=False)
    with capture_logs() as logs:
        runner = runner_of(part, lambda phase, fraction: None)
    assert isinstance(runner, DecoderRunner)
    assert settled == []
    assert [line["why"] for line in logs] == ["--no-cuda-graphs"]


def test_a_gpu_replays_and_compiles_and_a_cpu_does_neither(card: ModelCard) -> None:
    part = part_of(card)
    assert part.size.is_replayed
    on_cpu = replace(part.size, device=torch.device("cpu"))
    assert not on_cpu.is_replayed
    assert part.size.warm_up_limits([0]).compiles
    assert not on_cpu.warm_up_limits([0]).compiles


def test_where_drafts_have_no_room_steps_with_them_are_not_captured(
    card: ModelCard, settled: list[Settle]
) -> None:
    part, phases = part_of(card, speculation="ngram"), list[str]()
    part = replace(part, size=replace(part.size, why_no_drafts="no room"))
    assert part.size.draft_shapes is None
    runner_of(part, lambda phase, fraction: phases.append(phase))
    assert len(phases) == len(graph_sizes(MAX_SEQS)) + 1
    assert part.size.warm_up_limits([0]).max_drawn_rows == 0


def test_ranks_of_which_one_has_no_room_for_drafts_have_none(card: ModelCard) -> None:
    size = part_of(card, speculation="ngram").size
    told: list[int] = []

    def least(number: int, device: torch.device) -> int:
        told.append(number)
        return number if number > 1 else 0  # another rank has said so

    assert "another rank" in (_agreed(size, least).why_no_drafts or "")
    assert told == [size.context_tokens, 1]
    assert _agreed(size, lambda number, device: number).why_no_drafts is None
    own = replace(size, why_no_drafts="none here")
    assert _agreed(own, lambda number, device: number).why_no_drafts == "none here"


def test_steps_with_adapters_are_warmed_up_where_adapters_are_loaded(
    card: ModelCard, tmp_path: Path
) -> None:
    assert not part_of(card).size.warm_up_limits([0]).has_adapters
    size = part_of(card, adapters=str(tmp_path)).size
    assert size.warm_up_limits([0]).has_adapters
    assert not size.warm_up_limits([0]).is_pooled
    assert replace(size, num_workspaces=2).warm_up_limits([0]).is_pooled


def test_a_draft_models_decodes_are_replayed_over_a_pool_with_a_block_for_padding(
    card: ModelCard, settled: list[Settle]
) -> None:
    spec = spec_of(card, 1, max_context_tokens=32, kv_memory_bytes=1 << 20, max_num_seqs=MAX_SEQS)
    spec = structs.replace(spec, drafter=DraftSpec(card=card, dtype=spec.dtype))
    size = DraftSize.of(spec, WHOLE_REPLICA, torch.device("cpu"))
    assert size is not None
    draft = size.load(torch.device("cpu"), lambda phase, fraction: None, context_tokens=24)
    part = part_of(card, speculation="org/smaller")
    target, noted = part.decoder, lambda phase, fraction: None
    made = _drafting(draft, target, part.num_blocks, size=part.size, progress=noted)
    assert made is not None
    assert isinstance(made.runner, CudaRunner)
    assert made.runner._pool.num_blocks == part.num_blocks + 1
    assert made.runner._buffers.shape.scratch_block == part.num_blocks
    assert settled == [None]
    on_cpu = replace(part.size, device=torch.device("cpu"))
    made = _drafting(draft, target, part.num_blocks, size=on_cpu, progress=noted)
    assert made is not None
    assert isinstance(made.runner, DecoderRunner)
    assert made.runner._pool.num_blocks == part.num_blocks


def test_what_is_tried_and_warmed_up_of_a_draft_model_is_within_its_own_context(
    card: ModelCard,
) -> None:
    limits = part_of(card, speculation="org/smaller").size.warm_up_limits([0])
    assert limits.max_drawn_rows == MOST_ROWS
    beside = limits.beside(9)
    assert beside.max_drawn_rows == 0
    assert [len(batch.token_ids) for batch in longest_prompts(beside)] == [9]


def test_steps_with_drafts_are_captured_where_a_model_is_named(card: ModelCard) -> None:
    assert part_of(card, speculation="org/smaller").size.draft_shapes is not None


def test_where_drafts_have_no_room_no_memory_is_planned_for_a_draft_model(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_size, "why_no_room", lambda *of: "no room")
    spec = spec_of(card, 1, max_context_tokens=32, speculation="org/smaller")
    spec = structs.replace(spec, drafter=DraftSpec(card=card, dtype=spec.dtype))
    cpu, split = torch.device("cpu"), WHOLE_REPLICA.split_of(card.config)
    draft = DraftSize.of(spec, WHOLE_REPLICA, cpu)
    assert draft is not None
    assert draft.needs.block_bytes
    size = ReplicaSize.of(spec, WHOLE_REPLICA, split, cpu, draft)
    assert size.why_no_drafts == "no room"
    assert size.beside == BesideNeeds()
    part = load_part(spec, lambda phase, fraction: None)
    assert part.draft is None


def test_steps_with_drafts_are_captured_where_lookup_was_asked_for_by_name(
    card: ModelCard, settled: list[Settle]
) -> None:
    part, phases = part_of(card, speculation="ngram"), list[str]()
    shapes = part.size.draft_shapes
    assert shapes is not None
    runner_of(part, lambda phase, fraction: phases.append(phase))
    assert len(phases) == len(graph_sizes(MAX_SEQS)) + len(shapes.all()) + 1
    assert part.size.warm_up_limits([0]).max_drawn_rows == MOST_ROWS
    for others in ({"speculation": "auto"}, {"speculation": "ngram", "cuda_graphs": False}):
        size = part_of(card, **others).size
        assert size.draft_shapes is None
        assert size.warm_up_limits([0]).max_drawn_rows == 0
