"""A draft model of real layers whose steps are replayed, beside a target whose steps are: the
tokens of plain steps, as the CPU's kernels give a row the same bits in every batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from msgspec import structs

from engine.contract.commands import GenerateRequest
from engine.memory.kv_pool import KvPool
from engine.offline.queue import generate
from engine.runner.cuda_runner import CudaRunner, GraphLimits
from engine.runner.model_runner import DraftModel, DrawingRunner
from tests.engine.runner.rerun_graphs import RerunGraphs
from tests.engine.step.guessing import TickingClock
from tests.engine.step.model_guessing import drafter_of, nobody
from tests.engine.step.test_drafts_replayed import SHAPES
from tests.engine.step.test_run_ahead_replayed import (
    CONTEXT,
    MAX_SEQS,
    NUM_BLOCKS,
    Runners,
    bodies,
)
from tests.kernels.kernel_sets import cpu_set


class Drafted(Runners):
    """And the same decoder once more, which drafts for itself over a third pool."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SHAPES)
        self.draft_graphs = RerunGraphs()
        self.draft_pool = KvPool(self.pools[0].layout, NUM_BLOCKS + 1, "cpu")
        self.runner = CudaRunner(
            self.plain._decoder,
            self.draft_pool,
            limits=GraphLimits(max_num_seqs=MAX_SEQS, max_context_tokens=CONTEXT),
            backend=self.draft_graphs,
            progress=lambda phase, fraction: None,
        )
        self.draft = DraftModel(
            name="itself",
            runner=self.runner,
            vocab_size=61,
            max_context_tokens=CONTEXT,
            share=0.01,
        )


def long_bodies() -> list[GenerateRequest]:
    """Of every kind, none of which ends by itself."""
    return [
        structs.replace(body, sampling=structs.replace(body.sampling, ignore_eos=True))
        for body in bodies()
    ]


@pytest.fixture
def drafted(tmp_path: Path) -> Drafted:
    cpu_set("native")
    return Drafted(tmp_path)


def test_tokens_are_those_of_plain_steps_and_guesses_are_right(drafted: Drafted) -> None:
    assert isinstance(drafted.runner, DrawingRunner)
    plain = generate(drafted.engine(drafted.plain, drafted.pools[0]), long_bodies())
    engine = drafted.engine(
        drafted.replayed,
        drafted.pools[1],
        draft=drafted.draft,
        make_guesser=nobody,
        clock=TickingClock(),
    )
    found = generate(engine, long_bodies())
    assert [done.tokens for done in found] == [done.tokens for done in plain]
    assert [done.finish_reasons for done in found] == [done.finish_reasons for done in plain]
    ends = [done.ended for done in found if done.ended is not None]
    tried = sum(ended.draft_tokens for ended in ends)
    assert tried > 40
    assert sum(ended.accepted_draft_tokens for ended in ends) > 0.8 * tried
    assert drafted.draft_graphs.num_replayed > 10
    assert drafter_of(engine)._care._num_failures == 0
    assert engine.check_invariants() == []


def test_padding_of_a_draft_models_rounds_is_in_nobodys_block(drafted: Drafted) -> None:
    """Its pool has one block more than there are ids."""
    generate(
        drafted.engine(
            drafted.replayed,
            drafted.pools[1],
            draft=drafted.draft,
            make_guesser=nobody,
            clock=TickingClock(),
        ),
        long_bodies()[:3],
    )
    assert drafted.draft_pool.tensor[NUM_BLOCKS].any()
    untouched = drafted.draft_pool.tensor[:NUM_BLOCKS].flatten(1).any(dim=1).logical_not()
    assert int(untouched.sum()) > 0
    assert not torch.isnan(drafted.draft_pool.tensor).any()
