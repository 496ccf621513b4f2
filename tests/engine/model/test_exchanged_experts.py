"""Mixtures in groups of ranks: both exchanges, experts that move, against one decoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from cluster.models.card import ModelCard
from cluster.sharding import RowSharing
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from kernels.tape.mixture_operations import CountPicks
from tests.engine.model.mixture_cards import (
    LATENTS,
    MIXTURES,
    PROMPTS,
    card_of,
    deepseek_card,
)
from tests.engine.model.moving_experts import moving
from tests.engine.model.parity import CLOSE, generate
from tests.engine.model.rank_decoders import (
    Answers,
    answers_of_ranks,
    assert_one_decoder,
    rank_decoder,
)
from tests.engine.model.tiny_llama import BLOCK_SIZE, ragged_batch
from tests.kernels.kernel_sets import cpu_set
from tests.kernels.ranks import SameEverywhere, ThreadRank, run_ranks

SIZES = [(2, None), (4, None), (4, 2)]
Model = tuple[ModelCard, Answers]
"""And what one decoder answers."""


@pytest.fixture(scope="module")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Model]:
    """Of a family; made once."""

    @cache
    def made(family: str) -> Model:
        card = card_of(family, tmp_path_factory.mktemp("model"))
        return card, generate(Decoder.load(card, torch.float32, "cpu"), PROMPTS, 13)

    return made


@pytest.mark.parametrize(
    ("family", "num_ranks", "expert_parallel_size"),
    [
        *((family, *size) for family in [*MIXTURES, *LATENTS] for size in [(2, None), (4, 2)]),
        *((family, *size) for family in ["mixtral", "v3"] for size in [(4, None), (2, 1)]),
    ],
)
def test_ranks_that_exchange_rows_give_the_tokens_of_one_decoder(
    family: str,
    num_ranks: int,
    expert_parallel_size: int | None,
    model_of: Callable[[str], Model],
) -> None:
    card, alone = model_of(family)
    ranks = answers_of_ranks(
        card,
        PROMPTS,
        num_ranks,
        expert_parallel_size=expert_parallel_size,
        row_sharing=RowSharing.SPLIT,
    )
    assert_one_decoder(ranks, alone)


@pytest.mark.parametrize("row_sharing", [RowSharing.ALL, RowSharing.SPLIT])
@pytest.mark.parametrize(("num_ranks", "expert_parallel_size"), SIZES)
@pytest.mark.parametrize("family", ["mixtral", "qwen 3 moe with dense layers", "v3"])
def test_experts_that_move_in_mid_sequence_change_no_token(
    family: str,
    num_ranks: int,
    expert_parallel_size: int | None,
    row_sharing: RowSharing,
    model_of: Callable[[str], Model],
) -> None:
    card, alone = model_of(family)
    ranks = answers_of_ranks(
        card,
        PROMPTS,
        num_ranks,
        expert_parallel_size=expert_parallel_size,
        row_sharing=row_sharing,
        moved=moving,
    )
    assert_one_decoder(ranks, alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_where_rows_are_exchanged_no_bit_depends_on_the_rank_that_has_an_expert(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    cpu_set("native")  # whose rows have the same bits in every batch
    card = deepseek_card(tmp_path)
    still = answers_of_ranks(card, PROMPTS, 2, dtype=dtype, row_sharing=RowSharing.SPLIT)
    moved = answers_of_ranks(
        card, PROMPTS, 2, dtype=dtype, row_sharing=RowSharing.SPLIT, moved=moving
    )
    for (tokens, logits), (others, expected) in zip(moved[0], still[0], strict=True):
        assert tokens == others
        assert torch.equal(logits, expected)


@pytest.mark.parametrize("wanted", [[], [19], [19, 3], [0, 1, 2]])
def test_rows_whose_logits_are_wanted_may_all_be_of_one_rank(
    wanted: list[int], tmp_path: Path
) -> None:
    card = deepseek_card(tmp_path)
    prompt = PROMPTS[0][:20]
    batch = ragged_batch([(prompt, 0, list(range(-(-20 // BLOCK_SIZE))))])
    batch = replace(batch, logit_rows=torch.tensor(wanted, dtype=torch.int64))

    def logits_of(decoder: Decoder) -> torch.Tensor:
        layout = KvLayout.of_part(decoder.split, BLOCK_SIZE, decoder.dtype)
        return decoder.forward(batch, KvPool(layout, 8, "cpu"))

    def work(index: int, collective: ThreadRank) -> torch.Tensor:
        return logits_of(rank_decoder(card, index, collective, row_sharing=RowSharing.SPLIT))

    alone = logits_of(Decoder.load(card, torch.float32, "cpu"))
    for logits in run_ranks(4, work):
        torch.testing.assert_close(logits, alone, **CLOSE)


@pytest.mark.parametrize("row_sharing", [RowSharing.ALL, RowSharing.SPLIT])
def test_picks_are_counted_once_whoever_routes_the_rows(
    row_sharing: RowSharing, tmp_path: Path
) -> None:
    card = deepseek_card(tmp_path)
    config = card.config
    assert config.mixture is not None

    def work(index: int, collective: ThreadRank) -> torch.Tensor:
        decoder = rank_decoder(card, index, collective, row_sharing=row_sharing)
        generate(decoder, PROMPTS[:1], 13)
        return decoder.experts.total_picks()

    first, second = run_ranks(2, work)
    assert torch.equal(first, second)
    assert first.shape == (config.num_layers, config.mixture.num_experts)
    num_fed = len(generate(Decoder.load(card, torch.float32, "cpu"), PROMPTS[:1], 13)[0][1])
    per_layer = [0] + [num_fed * config.mixture.num_experts_per_token] * (config.num_layers - 1)
    assert first.sum(1).tolist() == per_layer


def test_a_single_rank_counts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[CountPicks] = []
    monkeypatch.setattr(CountPicks, "__init__", lambda self, **_: counted.append(self))
    decoder = Decoder.load(deepseek_card(tmp_path), torch.float32, "cpu")
    assert counted == []
    with pytest.raises(ValueError, match="a single rank"):
        decoder.experts.total_picks()


def test_a_collective_that_moves_no_rows_is_refused(tmp_path: Path) -> None:
    card = deepseek_card(tmp_path)
    with pytest.raises(ValueError, match="SameEverywhere exchanges no rows"):
        rank_decoder(card, 0, SameEverywhere(2), row_sharing=RowSharing.SPLIT)
