"""SmolLM2 on a group of ranks: three KV heads and nine of the query, which two share unevenly."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from cluster.sharding import Rank
from engine.contract.weight_format import WeightFormat
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from engine.model.ragged_batch import RaggedBatch
from engine.model.rank_place import RankPlace
from tests.engine.model.rank_decoders import rank_split
from tests.engine.model.tiny_llama import ragged_batch
from tests.fleet.reference import NUM_NEW_TOKENS, Reference
from tests.kernels.ranks import ThreadRank, run_ranks

BLOCK_SIZE = 16
NUM_PROMPTS = 6
"""Those of up to 79 tokens: longer ones are asked of groups of processes."""


@pytest.fixture(scope="module")
def card() -> ModelCard:
    return ModelStore().resolve("smollm2")


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    return Reference().prompts[:NUM_PROMPTS]


def last_rows(chunks: list[tuple[list[int], int, list[int]]]) -> RaggedBatch:
    batch = ragged_batch(chunks, block_size=BLOCK_SIZE)
    return replace(batch, logit_rows=batch.query_starts[1:].long() - 1)


def greedy(decoder: Decoder, prompts: list[list[int]]) -> tuple[list[list[int]], torch.Tensor]:
    """The tokens after each prompt, all prompts side by side, and the logits of the first ones."""
    per_prompt = -(-(max(map(len, prompts)) + NUM_NEW_TOKENS) // BLOCK_SIZE)
    layout = KvLayout.of_part(decoder.split, BLOCK_SIZE, decoder.dtype)
    pool = KvPool(layout, per_prompt * len(prompts), "cpu")
    tables = [list(range(at * per_prompt, (at + 1) * per_prompt)) for at in range(len(prompts))]
    prefill = [(prompt, 0, table) for prompt, table in zip(prompts, tables, strict=True)]
    first = decoder.forward(last_rows(prefill), pool)
    answers = [[token] for token in first.argmax(-1).tolist()]
    while len(answers[0]) < NUM_NEW_TOKENS:
        decodes = [
            ([answer[-1]], len(prompt) + len(answer) - 1, table)
            for prompt, answer, table in zip(prompts, answers, tables, strict=True)
        ]
        tokens = decoder.forward(last_rows(decodes), pool).argmax(-1).tolist()
        answers = [[*answer, token] for answer, token in zip(answers, tokens, strict=True)]
    return answers, first


def on_ranks(
    num_ranks: int, card: ModelCard, prompts: list[list[int]], form: WeightFormat
) -> list[tuple[list[list[int]], torch.Tensor]]:
    def work(index: int, collective: ThreadRank) -> tuple[list[list[int]], torch.Tensor]:
        split = rank_split(card, Rank(index, num_ranks), form)
        place = RankPlace(split=split, collective=collective)
        decoder = Decoder.load(card, torch.float32, "cpu", weights=form, place=place)
        return greedy(decoder, prompts)

    return run_ranks(num_ranks, work)


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_greedy_tokens_are_those_of_transformers_in_float32(
    num_ranks: int, card: ModelCard, prompts: list[list[int]]
) -> None:
    expected = Reference().answers[:NUM_PROMPTS]
    answers = on_ranks(num_ranks, card, prompts, WeightFormat.FULL)
    for tokens, logits in answers:
        assert tokens == expected
        assert torch.equal(logits, answers[0][1])


def test_two_ranks_of_stored_groups_are_within_a_tenth_of_a_logit_of_one_on_average(
    card: ModelCard, prompts: list[list[int]]
) -> None:
    """Native products round activations to bytes, 32 by 32, and are finer where a row's outliers
    are: among a rank's columns these may be others than among all. A token is another one only
    where two lie nearer to each other than that."""
    stored = WeightFormat.STORED  # Q4_1 in its groups, the embedding in Q6_K's or Q8_0's
    _, alone = greedy(Decoder.load(card, torch.float32, "cpu", weights=stored), prompts)
    ranks = on_ranks(2, card, prompts, stored)
    assert torch.equal(ranks[0][1], ranks[1][1])
    assert ranks[0][0] == ranks[1][0]
    error = (ranks[0][1] - alone).abs()
    assert float(error.mean()) < 0.1
    for shared, logits, most in zip(ranks[0][1], alone, error.amax(1), strict=True):
        assert float(logits.max() - logits[shared.argmax()]) <= 2 * float(most)
