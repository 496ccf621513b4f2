"""What steps leave for a head is the same whether they are replayed, padded or computed as they
are, and whoever has asked for it keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cluster.sampling import SamplingParams
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from engine.model.ragged_batch import RaggedBatch
from engine.runner.cuda_runner import CudaRunner, GraphLimits
from engine.runner.model_runner import DecoderRunner, LeavesStates
from engine.sampling.logits import SamplingRow
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
from tests.engine.runner.test_draft_graphs import MAX_SEQS, SHAPES, drafted

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
"""Of residuals before any norm, up to tens, whose products were added up in other batches."""
LAYERS_READ = {"layers": (0, 2), "behind the last norm": (3,)}


class Leaving:
    """The same model twice, as in test_draft_graphs.py, which leaves what layers read."""

    def __init__(self, decoder: Decoder, layout: KvLayout, width: int) -> None:
        self.decoder, self.backend = decoder, RerunGraphs()
        limits = GraphLimits(
            max_num_seqs=MAX_SEQS,
            max_context_tokens=MAX_CONTEXT,
            drafts=SHAPES,
            states_width=width,
        )
        self.runner = CudaRunner(
            decoder,
            KvPool(layout, NUM_BLOCKS + 1, "cpu"),
            limits=limits,
            backend=self.backend,
            progress=lambda phase, fraction: None,
        )
        self.plain = DecoderRunner(decoder, KvPool(layout, NUM_BLOCKS, "cpu"))

    def step(self, batch: RaggedBatch) -> torch.Tensor:
        """What the runner's has left, as the plain one's has."""
        self.runner.forward(batch)
        found = self.runner.states()
        self.plain.forward(batch)
        torch.testing.assert_close(found, self.decoder.states(), **CLOSE)
        return found


@pytest.fixture(params=LAYERS_READ)
def leaving(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Leaving:
    monkeypatch.setattr("engine.model.decoder.kernels_for", lambda *_: REFERENCE)
    model, layers = random_model(tiny_config()), LAYERS_READ[request.param]
    card = saved_card(model, tmp_path)
    decoder = Decoder.load(card, torch.float32, "cpu", states_of=layers)
    config = decoder_config(model.config)
    layout = KvLayout.of(config, BLOCK_SIZE, torch.float32)
    return Leaving(decoder, layout, len(layers) * config.hidden_size)


def test_prompts_decodes_and_padded_drafts_leave_what_plain_steps_do(leaving: Leaving) -> None:
    assert isinstance(leaving.runner, LeavesStates)
    sequences = Sequences(3)
    for context in (9, 12, 10):
        leaving.step(ragged_batch([sequences.add(context)]))
    assert leaving.backend.num_replayed == 0
    for lengths in ([2, 0, 5], [1, 3, 0], [0, 0, 1]):
        leaving.step(ragged_batch(sequences.decodes()))
        found = leaving.step(drafted(sequences, lengths))
        assert len(found) == 3 + sum(lengths)
    assert leaving.backend.num_replayed == 6


def test_what_was_asked_for_stays_when_the_next_step_is_replayed(leaving: Leaving) -> None:
    sequences = Sequences(4)
    leaving.step(ragged_batch([sequences.add(9)]))
    first = leaving.step(ragged_batch(sequences.decodes()))
    before = first.clone()
    leaving.step(ragged_batch(sequences.decodes()))
    assert torch.equal(first, before)


def test_a_launched_step_leaves_its_rows(leaving: Leaving) -> None:
    sequences = Sequences(5)
    for context in (9, 11):
        leaving.step(ragged_batch([sequences.add(context)]))
    batch = ragged_batch(sequences.decodes())
    greedy = SamplingParams(max_tokens=9, temperature=0.0)
    rows = [
        SamplingRow(logit_row=row, params=greedy, choice=0, token_ids=[1], num_prompt=1)
        for row in range(2)
    ]
    leaving.runner.launch(batch, rows, [None, None])
    found = leaving.runner.states()
    leaving.plain.forward(batch)
    torch.testing.assert_close(found, leaving.decoder.states(), **CLOSE)
