"""Padded, replayed steps with drafts against plain ragged ones; the backend re-runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from engine.model.ragged_batch import RaggedBatch
from engine.runner.cuda_runner import CudaRunner, GraphLimits, graph_sizes
from engine.runner.draft_shapes import DraftShapes
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
from tests.engine.runner.test_cuda_runner import MAX_CONTEXT, NUM_BLOCKS, Sequences
from tests.kernels.kernel_sets import tolerance

MAX_SEQS = 5
SHAPES = DraftShapes(max_num_seqs=MAX_SEQS, max_batch_tokens=64, max_context_tokens=MAX_CONTEXT)


class Pair:
    """The same model twice: replayed over one pool, ragged over another."""

    def __init__(self, decoder: Decoder, layout: KvLayout) -> None:
        self.backend = RerunGraphs()
        self.pool = KvPool(layout, NUM_BLOCKS + 1, "cpu")
        self.plain_pool = KvPool(layout, NUM_BLOCKS, "cpu")
        self.runner = CudaRunner(
            decoder,
            self.pool,
            limits=GraphLimits(
                max_num_seqs=MAX_SEQS, max_context_tokens=MAX_CONTEXT, drafts=SHAPES
            ),
            backend=self.backend,
            progress=lambda phase, fraction: None,
        )
        self.plain = DecoderRunner(decoder, self.plain_pool)

    def step(self, batch: RaggedBatch) -> None:
        """Both, and what they leave behind."""
        ours, expected = self.runner.forward(batch), self.plain.forward(batch)
        assert ours.shape == expected.shape
        torch.testing.assert_close(ours, expected, **tolerance(torch.float32))
        written = self.pool.tensor[:NUM_BLOCKS]
        torch.testing.assert_close(written, self.plain_pool.tensor, **tolerance(torch.float32))


@pytest.fixture(params=["native or torch", "reference"])
def pair(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    if request.param == "reference":
        monkeypatch.setattr("engine.model.decoder.kernels_for", lambda *_: REFERENCE)
    model = random_model(tiny_config())
    decoder = Decoder.load(saved_card(model, tmp_path), torch.float32, "cpu")
    return Pair(decoder, KvLayout.of(decoder_config(model.config), BLOCK_SIZE, torch.float32))


def drafted(sequences: Sequences, lengths: list[int]) -> RaggedBatch:
    """The next token of each sequence, and drafts of so many; none of them is kept."""
    chunks = []
    for (tokens, blocks), length in zip(sequences.alive, lengths, strict=True):
        at = len(tokens)
        while len(blocks) * BLOCK_SIZE < at + 1 + length:
            blocks.append(sequences.free.pop())
        guesses = [sequences.chance.randrange(61) for _ in range(length)]
        tokens.append(sequences.chance.randrange(61))
        chunks.append(([tokens[-1], *guesses], at, list(blocks)))
    return ragged_batch(chunks)


def started(pair: Pair, seed: int, contexts: list[int]) -> Sequences:
    sequences = Sequences(seed)
    for context in contexts:
        pair.step(ragged_batch([sequences.add(context)]))
    pair.backend.num_replayed = 0
    return sequences


def test_a_graph_per_shape_is_captured_beside_those_of_decodes(pair: Pair) -> None:
    assert pair.backend.num_captured == len(graph_sizes(MAX_SEQS)) + len(SHAPES.all())
    assert not pair.pool.tensor[:NUM_BLOCKS].any()  # capturing wrote to nobody's block


@pytest.mark.parametrize("num_seqs", range(1, MAX_SEQS + 1))
def test_drafts_of_all_lengths_side_by_side_are_those_of_ragged_steps(
    pair: Pair, num_seqs: int
) -> None:
    """Padding is of rows and of sequences; what a rejected guess has written is written over."""
    sequences = started(pair, num_seqs, [9] * num_seqs)
    longest = SHAPES.max_draft_tokens(num_seqs)
    for turn in range(6):
        lengths = [sequences.chance.randint(0, min(7, longest)) for _ in range(num_seqs)]
        lengths[turn % num_seqs] = 1 + turn % min(7, longest)
        pair.step(drafted(sequences, lengths))
        if turn % 3 == 2:
            pair.step(ragged_batch(sequences.decodes()))
    assert pair.backend.num_replayed == 6 + 2


def test_fewer_sequences_after_more_and_longer_after_shorter(pair: Pair) -> None:
    sequences = started(pair, 3, [9, 9, 10, 11, 9])
    pair.step(drafted(sequences, [3, 1, 0, 2, 1]))
    sequences.drop(4)
    sequences.drop(1)
    pair.step(drafted(sequences, [3, 0, 3]))
    sequences.drop(0)
    sequences.drop(0)
    pair.step(drafted(sequences, [4]))
    pair.step(drafted(sequences, [3]))
    assert pair.backend.num_replayed == 4


def test_contexts_shorter_than_their_padding_run_as_they_are(pair: Pair) -> None:
    sequences = started(pair, 4, [2, 12])
    pair.step(drafted(sequences, [1, 4]))  # three and seventeen tokens, padded to eight rows
    assert pair.backend.num_replayed == 0
    pair.step(drafted(sequences, [0, 3]))  # four tokens, and four rows
    assert pair.backend.num_replayed == 1


def test_what_no_shape_holds_or_is_something_else_runs_as_it_is(pair: Pair) -> None:
    sequences = started(pair, 5, [4] * 5)
    pair.step(drafted(sequences, [16, 0, 0, 0, 0]))
    batch = drafted(sequences, [3, 1, 0, 2, 1])
    pair.step(replace(batch, logit_rows=batch.query_starts[1:].long() - 1))
    pair.step(ragged_batch([*sequences.decodes(), sequences.add(6)]))
    assert pair.backend.num_replayed == 0
    sequences.drop(5)
    pair.runner.close()
    pair.step(drafted(sequences, [1] * 5))
    assert pair.backend.num_replayed == 0


def test_padding_writes_to_no_block_that_a_sequence_may_have(pair: Pair) -> None:
    sequences = started(pair, 6, [10, 11, 12])
    batch = drafted(sequences, [1, 0, 2])
    written = {int(slot) // BLOCK_SIZE for slot in batch.slots}
    others = [block for block in range(NUM_BLOCKS) if block not in written]
    before = pair.pool.tensor.clone()
    pair.runner.forward(batch)
    assert pair.backend.num_replayed == 1
    assert torch.equal(pair.pool.tensor[others], before[others])
