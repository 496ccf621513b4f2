"""Run-ahead over replayed steps of a real decoder: the tokens of plain steps that wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.engine_options import EngineOptions
from cluster.sampling import SamplingParams
from engine.contract.commands import GenerateRequest
from engine.contract.messages import Loaded
from engine.contract.weight_format import WeightFormat
from engine.memory.kv_pool import KvLayout, KvPool
from engine.memory.page_locked import SampledTokens
from engine.model.decoder import Decoder
from engine.offline.queue import generate
from engine.runner.cuda_runner import CudaRunner, GraphLimits
from engine.runner.draft_shapes import DraftShapes
from engine.runner.model_runner import (
    DecoderRunner,
    DraftModel,
    LaunchingRunner,
    ModelRunner,
    Replica,
)
from engine.sampling.logits import SamplingRow
from engine.step.engine import Engine
from tests.engine.model.tiny_llama import (
    BLOCK_SIZE,
    ragged_batch,
    random_model,
    saved_card,
    tiny_config,
)
from tests.engine.runner.rerun_graphs import RerunGraphs
from tests.engine.step.engine_scenario import request

NUM_BLOCKS = 64
MAX_SEQS = 6
CONTEXT = 48


class Runners:
    """One decoder, plain and replayed, each over a pool of its own."""

    def __init__(self, folder: Path, drafts: DraftShapes | None = None) -> None:
        card = saved_card(random_model(tiny_config()), folder)
        decoder = Decoder.load(card, torch.float32, "cpu")
        layout = KvLayout.of(card.config, BLOCK_SIZE, torch.float32)
        self.backend, self.drafts = RerunGraphs(), drafts
        self.pools = [KvPool(layout, NUM_BLOCKS + 1, "cpu") for _ in range(2)]
        self.plain = DecoderRunner(decoder, self.pools[0])
        self.replayed = CudaRunner(
            decoder,
            self.pools[1],
            limits=GraphLimits(max_num_seqs=MAX_SEQS, max_context_tokens=CONTEXT, drafts=drafts),
            backend=self.backend,
            progress=lambda phase, fraction: None,
        )

    def engine(
        self,
        runner: ModelRunner,
        pool: KvPool,
        *,
        draft: DraftModel | None = None,
        **drafting: Any,
    ) -> Engine:
        """Over the blocks that are not for padding."""
        replica = Replica(
            runner=runner,
            loaded=Loaded(weights=WeightFormat.FULL),
            kv=pool.tensor[:NUM_BLOCKS],
            vocab_size=61,
            eos_token_ids=(2,),
            max_context_tokens=CONTEXT,
            num_homes=1,
            batch_device=torch.device("cpu"),
            draft=draft,
            draft_shapes=self.drafts if drafting else None,
        )
        options = EngineOptions(
            block_size_tokens=BLOCK_SIZE, max_batch_tokens=16, max_num_seqs=MAX_SEQS
        )
        return Engine(replica, options, **drafting)


@pytest.fixture
def runners(tmp_path: Path) -> Runners:
    return Runners(tmp_path)


def bodies() -> list[GenerateRequest]:
    """More than there are seats for, of every length and every simple kind."""
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 0.9, "seed": 3},
        {"temperature": 1.3, "top_k": 9, "n": 2},
        {"top_p": 0.8, "seed": 8},
        {"min_p": 0.1, "stop_token_ids": (5, 6, 7)},
        {"temperature": 0.0, "frequency_penalty": 1.0},
    ]
    lengths: list[dict[str, Any]] = [
        {"max_tokens": 4 + 5 * (i % 5), "ignore_eos": i != 2} for i in range(10)
    ]
    return [
        request(f"{i}", [3 + i] * (1 + 2 * i), **length, **kinds[i % len(kinds)])
        for i, length in enumerate(lengths)
    ]


def test_an_engine_over_replayed_steps_gives_the_tokens_of_one_over_plain_steps(
    runners: Runners,
) -> None:
    plain = generate(runners.engine(runners.plain, runners.pools[0]), bodies())
    ahead = generate(runners.engine(runners.replayed, runners.pools[1]), bodies())
    assert isinstance(runners.replayed, LaunchingRunner)
    assert not isinstance(runners.plain, LaunchingRunner)
    for expected, found in zip(plain, ahead, strict=True):
        assert found.tokens == expected.tokens
        assert found.finish_reasons == expected.finish_reasons
    assert runners.backend.num_replayed > 20


def greedy_row(row: int) -> SamplingRow:
    return SamplingRow(
        logit_row=row,
        params=SamplingParams(max_tokens=9, temperature=0.0),
        choice=0,
        token_ids=[1],
        num_prompt=1,
    )


def test_inputs_come_from_any_rows_of_the_last_launch_or_from_the_host(runners: Runners) -> None:
    prompts = [([7, 8], 0, [0]), ([9], 0, [1]), ([10, 11, 12], 0, [2])]
    for runner in (runners.plain, runners.replayed):
        for prompt in prompts:
            runner.forward(ragged_batch([prompt]))
    first = ragged_batch([([20], 2, [0]), ([21], 1, [1]), ([22], 3, [2])])
    rows = [greedy_row(row) for row in range(3)]
    flight = runners.replayed.launch(first, rows, [None, None, None])
    expected = runners.plain.forward(first).argmax(dim=-1).tolist()
    # the last, a new one, the first; tokens that are fed on the device are 0 in the batch
    hidden = ragged_batch([([0], 4, [2, 3]), ([30], 0, [4]), ([0], 3, [0])])
    second = runners.replayed.launch(hidden, rows, [2, None, 0])
    known = ragged_batch([([expected[2]], 4, [2, 3]), ([30], 0, [4]), ([expected[0]], 3, [0])])
    assert flight.tokens() == expected
    assert second.tokens() == runners.plain.forward(known).argmax(dim=-1).tolist()
    pools = [pool.tensor[:NUM_BLOCKS] for pool in runners.pools]
    torch.testing.assert_close(pools[1], pools[0], rtol=1e-5, atol=1e-5)


def test_a_row_whose_logits_are_not_numbers_has_no_token() -> None:
    maxima = torch.tensor([1.0, torch.nan, torch.inf, -2.0])
    assert SampledTokens(maxima, torch.tensor([4, 5, 6, 7])).tokens() == [4, None, None, 7]
