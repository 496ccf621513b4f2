"""Padded, replayed decode steps against plain ones; the backend re-runs instead of replaying."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from engine.model.ragged_batch import RaggedBatch
from engine.runner.cuda_runner import CudaRunner, GraphLimits, graph_sizes
from engine.runner.model_runner import DecoderRunner
from kernels.dispatch.kernel_sets import REFERENCE
from tests.engine.model.tiny_llama import (
    BLOCK_SIZE,
    decoder_config,
    ragged_batch,
    random_model,
    saved_card,
    tiny_config,
)
from tests.engine.runner.rerun_graphs import RerunGraphs

MAX_SEQS = 19
MAX_CONTEXT = 24
NUM_BLOCKS = 140


class Pair:
    """The same model twice: replayed over one pool, plain over another."""

    def __init__(self, decoder: Decoder, layout: KvLayout) -> None:
        self.backend = RerunGraphs()
        self.pool = KvPool(layout, NUM_BLOCKS + 1, "cpu")
        self.plain_pool = KvPool(layout, NUM_BLOCKS, "cpu")
        self.phases: list[tuple[str, float]] = []
        self.runner = CudaRunner(
            decoder,
            self.pool,
            limits=GraphLimits(max_num_seqs=MAX_SEQS, max_context_tokens=MAX_CONTEXT),
            backend=self.backend,
            progress=lambda phase, fraction: self.phases.append((phase, fraction)),
        )
        self.plain = DecoderRunner(decoder, self.plain_pool)

    def step(self, batch: RaggedBatch) -> None:
        """Both, and what they leave behind."""
        ours, expected = self.runner.forward(batch), self.plain.forward(batch)
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
        written = self.pool.tensor[:NUM_BLOCKS]
        torch.testing.assert_close(written, self.plain_pool.tensor, rtol=1e-5, atol=1e-5)


@pytest.fixture(params=["native or torch", "reference"])
def pair(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    if request.param == "reference":
        monkeypatch.setattr("engine.model.decoder.kernels_for", lambda *_: REFERENCE)
    model = random_model(tiny_config())
    decoder = Decoder.load(saved_card(model, tmp_path), torch.float32, "cpu")
    return Pair(decoder, KvLayout.of(decoder_config(model.config), BLOCK_SIZE, torch.float32))


class Sequences:
    """Tokens and blocks of sequences that come, grow and go."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.free = list(range(NUM_BLOCKS))
        self.chance.shuffle(self.free)
        self.alive: list[tuple[list[int], list[int]]] = []
        """(tokens, block ids)"""

    def add(self, length: int) -> tuple[list[int], int, list[int]]:
        """A prompt, as `ragged_batch` takes it."""
        tokens = [self.chance.randrange(61) for _ in range(length)]
        blocks = [self.free.pop() for _ in range(-(-length // BLOCK_SIZE))]
        self.alive.append((tokens, blocks))
        return tokens, 0, blocks

    def drop(self, index: int) -> None:
        self.free = self.alive.pop(index)[1] + self.free

    def decodes(self) -> list[tuple[list[int], int, list[int]]]:
        """One more token of each."""
        chunks = []
        for tokens, blocks in self.alive:
            if len(tokens) % BLOCK_SIZE == 0:
                blocks.append(self.free.pop())
            tokens.append(self.chance.randrange(61))
            chunks.append((tokens[-1:], len(tokens) - 1, list(blocks)))
        return chunks


def test_sizes_double_and_then_grow_by_eight() -> None:
    assert graph_sizes(1) == [1]
    assert graph_sizes(3) == [1, 2, 3]
    assert graph_sizes(8) == [1, 2, 4, 8]
    assert graph_sizes(19) == [1, 2, 4, 8, 16, 19]
    assert graph_sizes(256)[-2:] == [248, 256]


def test_a_graph_per_size_is_captured_at_load_with_progress(pair: Pair) -> None:
    assert pair.backend.num_captured == len(graph_sizes(MAX_SEQS)) == 6
    assert pair.phases[0] == ("capture graphs", 0.0)
    assert pair.phases[-1] == ("capture graphs", 1.0)
    assert not pair.pool.tensor[:NUM_BLOCKS].any()  # capturing wrote to nobody's block


def test_decodes_of_every_batch_size_are_those_of_plain_steps(pair: Pair) -> None:
    sequences = Sequences(1)
    for num_seqs in range(1, MAX_SEQS + 1):
        pair.step(ragged_batch([sequences.add(2 + num_seqs % 4)]))
        pair.step(ragged_batch(sequences.decodes()))
    assert pair.backend.num_replayed == MAX_SEQS


def test_sequences_may_come_grow_and_go_between_replays(pair: Pair) -> None:
    sequences = Sequences(2)
    for _ in range(25):
        room = MAX_SEQS - len(sequences.alive)
        for _ in range(min(room, sequences.chance.choice([0, 0, 1, 6]))):
            pair.step(ragged_batch([sequences.add(sequences.chance.randint(1, 6))]))
        for index in reversed(range(len(sequences.alive))):
            is_full = len(sequences.alive[index][0]) == MAX_CONTEXT
            if is_full or sequences.chance.random() < 0.1:
                sequences.drop(index)
        if sequences.alive:
            pair.step(ragged_batch(sequences.decodes()))
    assert pair.backend.num_replayed > 20


def test_prompts_and_mixed_steps_run_as_they_are(pair: Pair) -> None:
    sequences = Sequences(3)
    pair.step(ragged_batch([sequences.add(5)]))
    decodes = sequences.decodes()
    pair.step(ragged_batch([*decodes, sequences.add(6)]))
    assert pair.backend.num_replayed == 0


def test_a_batch_beyond_the_largest_size_runs_as_it_is(pair: Pair) -> None:
    sequences = Sequences(4)
    for _ in range(MAX_SEQS + 1):
        pair.step(ragged_batch([sequences.add(2)]))
    pair.step(ragged_batch(sequences.decodes()))
    assert pair.backend.num_replayed == 0


def test_a_wider_table_than_contexts_allow_is_cut(pair: Pair) -> None:
    sequences = Sequences(5)
    pair.step(ragged_batch([sequences.add(3)]))
    batch = ragged_batch(sequences.decodes())
    spare = torch.full((1, 16), NUM_BLOCKS - 1, dtype=torch.int32)
    tables = torch.cat((batch.block_tables, spare), dim=1)
    pair.step(replace(batch, block_tables=tables))
    assert pair.backend.num_replayed == 1


def test_blocks_are_copied_whole(pair: Pair) -> None:
    pair.pool.tensor.copy_(torch.randn_like(pair.pool.tensor))
    before = pair.pool.tensor.clone()
    pair.runner.copy_blocks([(3, 9), (5, 2)])
    pair.runner.copy_blocks([])
    assert torch.equal(pair.pool.tensor[[9, 2]], before[[3, 5]])
    assert torch.equal(pair.pool.tensor[[3, 5, 8]], before[[3, 5, 8]])
