"""What a launch promises of itself: inputs from the device, and no wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from cluster.kv_shape import KvShape
from cluster.sampling import SamplingParams
from engine.memory.kv_pool import KvLayout, KvPool
from engine.memory.page_locked import SampledTokens
from engine.model.decoder import Decoder
from engine.model.ragged_batch import RaggedBatch
from engine.runner.cuda_runner import CudaRunner, GraphLimits
from engine.runner.draft_shapes import DraftShapes
from engine.runner.graph_backend import CudaGraphs
from engine.sampling.device_draw import draw_on_device
from engine.sampling.logits import SamplingRow
from tests.engine.model.tiny_llama import BLOCK_SIZE, ragged_batch
from tests.engine.runner.rerun_graphs import RerunGraphs

VOCAB_SIZE = 128
MAX_SEQS = 5
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
        ],
    ),
]


def following(token_id: int) -> int:
    """The likeliest token after this one, by far."""
    return (7 * token_id + 3) % VOCAB_SIZE


class Chain:
    """A decoder, as far as a runner can tell: the next token is a function of the last."""

    config = SimpleNamespace(vocab_size=VOCAB_SIZE)

    def __init__(self, device: str) -> None:
        self._logits = torch.zeros(VOCAB_SIZE, VOCAB_SIZE, device=device)
        for token_id in range(VOCAB_SIZE):
            self._logits[token_id, following(token_id)] = 50.0

    def forward(self, batch: RaggedBatch, pool: KvPool) -> torch.Tensor:
        """See Decoder."""
        return self._logits[batch.token_ids[batch.logit_rows]]


def chain_runner(device: str) -> CudaRunner:
    layout = KvLayout(
        shape=KvShape(num_layers=1, num_planes=2, num_kv_heads=1, head_dim=8),
        block_size=BLOCK_SIZE,
        dtype=torch.float32,
    )
    is_cuda = device == "cuda"
    return CudaRunner(
        cast(Decoder, Chain(device)),
        KvPool(layout, 9, device),
        limits=GraphLimits(
            max_num_seqs=MAX_SEQS,
            max_context_tokens=32,
            drafts=DraftShapes(max_num_seqs=MAX_SEQS, max_batch_tokens=64, max_context_tokens=32),
        ),
        backend=CudaGraphs(torch.device(device)) if is_cuda else RerunGraphs(),
        progress=lambda phase, fraction: None,
    )


@contextmanager
def no_waiting(device: str) -> Iterator[None]:
    """Whatever waits for the device raises."""
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("default")


def rows_of(**sampling: Any) -> list[SamplingRow]:
    return [
        SamplingRow(
            logit_row=row,
            params=SamplingParams(max_tokens=99, seed=row, **sampling),
            choice=0,
            token_ids=[1],
            num_prompt=1,
        )
        for row in range(MAX_SEQS)
    ]


def step_at(position: int, token_ids: list[int]) -> RaggedBatch:
    blocks = [list(range(-(-(position + 1) // BLOCK_SIZE))) for _ in token_ids]
    return ragged_batch([([i], position, b) for i, b in zip(token_ids, blocks, strict=True)])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "sampling", [{"temperature": 0.0}, {"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.9}]
)
def test_twenty_steps_are_launched_before_any_is_read(
    device: str, sampling: dict[str, Any]
) -> None:
    runner, rows = chain_runner(device), rows_of(**sampling)
    tokens = [3, 50, 7, 120, 64]
    runner.launch(step_at(0, tokens), rows, [None] * MAX_SEQS).tokens()  # compiles
    with no_waiting(device):
        flights = [runner.launch(step_at(0, tokens), rows, [None] * MAX_SEQS)]
        for position in range(1, 20):
            batch = step_at(position, [0] * MAX_SEQS)
            flights.append(runner.launch(batch, rows, range(MAX_SEQS)))
    for flight in flights:
        tokens = [following(token_id) for token_id in tokens]
        assert flight.tokens() == tokens


@pytest.mark.parametrize("device", DEVICES)
def test_rows_leave_and_others_come_without_the_host_knowing_any_token(device: str) -> None:
    runner, rows = chain_runner(device), rows_of(temperature=0.0)
    first = runner.launch(step_at(0, [1, 2, 3, 4, 5]), rows, [None] * 5)
    second = runner.launch(step_at(1, [0, 99, 0]), rows[:3], [4, None, 2])
    third = runner.launch(step_at(2, [0, 0, 8, 0]), rows[:4], [1, 0, None, 2])
    assert first.tokens() == [following(i) for i in (1, 2, 3, 4, 5)]
    assert second.tokens() == [following(following(5)), following(99), following(following(3))]
    inputs = [following(99), following(following(5)), 8, following(following(3))]
    assert third.tokens() == [following(token_id) for token_id in inputs]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 1.0}])
def test_launches_go_on_from_what_is_drawn_of_any_step_without_waiting(
    device: str, sampling: dict[str, Any]
) -> None:
    """As a draft model's: some tokens of each are read, then one round follows the other."""
    runner, rows = chain_runner(device), rows_of(**sampling)[:3]
    known = [[3, 50, 7], [120], [64, 5]]
    prompts = ragged_batch([(own, 0, [block]) for block, own in enumerate(known)])
    prompts = replace(prompts, logit_rows=prompts.query_starts[1:].long() - 1)
    runner.launch(step_at(0, [1, 2, 3]), rows, [None] * 3).tokens()  # compiles
    logits = runner.forward(prompts)
    runner.draw(logits, rows).tokens()  # compiles
    with no_waiting(device):
        flights = [runner.draw(logits, rows)]
        for place in range(3, 7):
            batch = step_at(place, [0] * 3)
            flights.append(runner.launch(batch, rows, range(3)))
    tokens = [own[-1] for own in known]
    for flight in flights:
        tokens = [following(token_id) for token_id in tokens]
        assert flight.tokens() == tokens


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "sampling", [{"temperature": 0.0}, {"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.9}]
)
def test_steps_with_drafts_are_computed_and_drawn_without_waiting_for_any(
    device: str, sampling: dict[str, Any]
) -> None:
    """Rows of three sequences, of which all are drawn at once; who reads them waits for those."""
    runner, rows = chain_runner(device), rows_of(**sampling)
    blocks = [list(range(-(-20 // BLOCK_SIZE)))] * 3
    inputs = [[3, 50, 7], [120], [64]]
    batch = ragged_batch([(own, 12, at) for own, at in zip(inputs, blocks, strict=True)])
    SampledTokens(*draw_on_device(runner.forward(batch), rows)).tokens()  # compiles
    with no_waiting(device):
        flights = [SampledTokens(*draw_on_device(runner.forward(batch), rows)) for _ in range(5)]
    expected = [following(token_id) for own in inputs for token_id in own]
    assert [flight.tokens() for flight in flights] == [expected] * 5
