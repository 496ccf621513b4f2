"""A row of a draft has the bits of the step that would compute it alone: on this all of exact
speculation stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

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
from kernels.cpu.team import TEAM
from tests.engine.model.mixture_cards import LATENTS, MIXTURES
from tests.engine.model.mixture_cards import card_of as family_card
from tests.engine.model.rank_decoders import rank_split
from tests.engine.model.tiny_llama import ragged_batch, random_model, saved_card, tiny_config
from tests.kernels.kernel_sets import cpu_set
from tests.kernels.ranks import ThreadRank, run_ranks

LENGTHS = (1, 2, 4, 7, 17)
"""Rows of the sequences that are verified side by side: 0 to 16 tokens of a draft each."""

Texts = list[tuple[list[int], int]]
"""Of each sequence: its tokens, and how many of them are known before the step that is verified."""


def tables_of(texts: Texts, block_size: int) -> list[list[int]]:
    """Blocks that lie apart, each sequence's own."""
    width = -(-max(len(tokens) for tokens, _ in texts) // block_size)
    return [[index * len(texts) + seq for index in range(width)] for seq in range(len(texts))]


def texts_of(vocab_size: int, contexts: list[int], seed: int = 5) -> Texts:
    """Random ones, with as many tokens before their rows."""
    made = torch.Generator().manual_seed(seed)
    lengths = [context + rows for context, rows in zip(contexts, LENGTHS, strict=True)]
    return [
        (torch.randint(0, vocab_size, (length,), generator=made).tolist(), context)
        for length, context in zip(lengths, contexts, strict=True)
    ]


def last_rows(batch: RaggedBatch) -> RaggedBatch:
    return replace(batch, logit_rows=batch.query_starts[1:].long() - 1)


def row_by_row(decoder: Decoder, texts: Texts, block_size: int, pool: KvPool) -> list[torch.Tensor]:
    """Each token a step of its own; returns the logits of the rows of each sequence."""
    found = []
    for (tokens, known), table in zip(texts, tables_of(texts, block_size), strict=True):
        decoder.forward(
            last_rows(ragged_batch([(tokens[:known], 0, table)], block_size=block_size)), pool
        )
        steps = [
            ragged_batch([([tokens[at]], at, table)], block_size=block_size)
            for at in range(known, len(tokens))
        ]
        found.append(torch.cat([decoder.forward(step, pool).clone() for step in steps]))
    return found


def all_at_once(
    decoder: Decoder, texts: Texts, block_size: int, pool: KvPool
) -> list[torch.Tensor]:
    """The same rows in one ragged step of all sequences, over KV of wrong guesses."""
    tables = tables_of(texts, block_size)
    prompts = [
        (tokens[:known], 0, table) for (tokens, known), table in zip(texts, tables, strict=True)
    ]
    decoder.forward(last_rows(ragged_batch(prompts, block_size=block_size)), pool)
    for wrong in (True, False):
        rows = [
            ([(t + wrong) % decoder.config.vocab_size for t in tokens[known:]], known, table)
            for (tokens, known), table in zip(texts, tables, strict=True)
        ]
        logits = decoder.forward(ragged_batch(rows, block_size=block_size), pool)
    return list(logits.split([len(tokens) - known for tokens, known in texts]))


def assert_alike(
    make_pool: Callable[[], KvPool], decoder: Decoder, texts: Texts, block_size: int
) -> None:
    alone = row_by_row(decoder, texts, block_size, make_pool())
    together = all_at_once(decoder, texts, block_size, make_pool())
    for one, many in zip(alone, together, strict=True):
        assert one.shape == many.shape
        assert torch.equal(one, many)


@pytest.fixture(autouse=True)
def native() -> None:
    cpu_set("native")


@pytest.mark.parametrize("kv", [None, torch.int8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_threads", [1, 2])
def test_rows_of_a_tiny_model_over_block_borders_are_those_of_single_steps(
    num_threads: int,
    dtype: torch.dtype,
    kv: torch.dtype | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TEAM, "num_threads", num_threads)
    card = saved_card(random_model(tiny_config()), tmp_path)
    decoder = Decoder.load(card, dtype, "cpu")
    assert decoder.num_native_calls == 1
    texts = texts_of(card.config.vocab_size, [3, 4, 15, 62, 65])
    for block_size in (2, 4, 16):
        layout = KvLayout.of(card.config, block_size, kv or dtype)
        num_blocks = len(texts) * (1 + 90 // block_size)
        assert_alike(lambda: KvPool(layout, num_blocks, "cpu"), decoder, texts, block_size)  # noqa: B023


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", [*MIXTURES, *LATENTS])
def test_rows_of_latents_and_mixtures_are_those_of_single_steps(
    family: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    """Kernel by kernel: routes, experts and latents have no native program."""
    card = family_card(family, tmp_path)
    decoder = Decoder.load(card, dtype, "cpu")
    assert decoder.num_native_calls == 0
    assert decoder.has_alike_rows
    texts = texts_of(card.config.vocab_size, [3, 4, 15, 62, 65])
    layout = KvLayout.of(card.config, 16, dtype)
    assert_alike(lambda: KvPool(layout, 8 * len(texts), "cpu"), decoder, texts, 16)


@pytest.fixture(scope="module")
def smollm2() -> ModelCard:
    return ModelStore().resolve("smollm2")


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("form", [WeightFormat.STORED, WeightFormat.FULL])
def test_rows_of_smollm2_are_those_of_single_steps(
    form: WeightFormat, num_threads: int, smollm2: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contexts below, over and at borders of blocks and of the segments of attention."""
    monkeypatch.setattr(TEAM, "num_threads", num_threads)
    decoder = Decoder.load(smollm2, torch.bfloat16, "cpu", weights=form)
    texts = texts_of(smollm2.config.vocab_size, [5, 31, 250, 505, 120])
    layout = KvLayout.of(smollm2.config, 16, torch.bfloat16)
    assert_alike(lambda: KvPool(layout, 40 * len(texts), "cpu"), decoder, texts, 16)


@pytest.mark.parametrize("form", [WeightFormat.STORED, WeightFormat.FULL])
def test_rows_of_two_ranks_are_those_of_their_single_steps(
    form: WeightFormat, smollm2: ModelCard
) -> None:
    texts = texts_of(smollm2.config.vocab_size, [5, 31, 65, 40, 12])

    def work(index: int, collective: ThreadRank) -> bool:
        place = RankPlace(split=rank_split(smollm2, Rank(index, 2), form), collective=collective)
        decoder = Decoder.load(smollm2, torch.bfloat16, "cpu", weights=form, place=place)
        layout = KvLayout.of_part(decoder.split, 16, decoder.dtype)
        assert_alike(lambda: KvPool(layout, 10 * len(texts), "cpu"), decoder, texts, 16)
        return True

    assert run_ranks(2, work) == [True, True]
