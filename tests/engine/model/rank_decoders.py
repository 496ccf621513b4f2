"""The decoders of a group's ranks, each on a thread of one process."""

from __future__ import annotations

from collections.abc import Callable

import torch

from cluster.models.card import ModelCard
from cluster.models.model_split import ModelSplit
from cluster.sharding import Rank, RowSharing
from engine.contract.weight_format import WeightFormat
from engine.model.decoder import Decoder
from engine.model.rank_place import RankPlace
from engine.model.weights.open_checkpoint import fitted_split
from kernels.tape.collective import Collective
from tests.engine.model.parity import CLOSE, generate
from tests.kernels.ranks import ThreadRank, run_ranks

Answers = list[tuple[list[int], torch.Tensor]]
"""Of each prompt: its tokens after greedy decoding, and the logits of all but the last."""


def rank_split(
    card: ModelCard,
    rank: Rank,
    weights: WeightFormat = WeightFormat.FULL,
    expert_parallel_size: int | None = None,
    *,
    row_sharing: RowSharing = RowSharing.ALL,
) -> ModelSplit:
    """As a replica's loader and its memory plan get it."""
    asked = ModelSplit(
        config=card.config,
        rank=rank,
        expert_parallel_size=expert_parallel_size,
        row_sharing=row_sharing,
    )
    return fitted_split(card, asked, weights)


def rank_decoder(
    card: ModelCard,
    index: int,
    collective: Collective,
    *,
    dtype: torch.dtype = torch.float32,
    row_sharing: RowSharing = RowSharing.ALL,
) -> Decoder:
    """That rank's of the collective's."""
    split = rank_split(card, Rank(index, collective.world_size), row_sharing=row_sharing)
    place = RankPlace(split=split, collective=collective)
    return Decoder.load(card, dtype, "cpu", place=place)


def answers_of_ranks(
    card: ModelCard,
    prompts: list[list[int]],
    num_ranks: int,
    *,
    chunk_tokens: int = 13,
    dtype: torch.dtype = torch.float32,
    weights: WeightFormat = WeightFormat.FULL,
    expert_parallel_size: int | None = None,
    row_sharing: RowSharing = RowSharing.ALL,
    moved: Callable[[Decoder], Decoder] = lambda decoder: decoder,
) -> list[Answers]:
    """Of every rank: each decodes by the logits that it gathered itself, with what `moved` makes of
    its decoder."""

    def work(index: int, collective: ThreadRank) -> Answers:
        rank = Rank(index, num_ranks)
        split = rank_split(card, rank, weights, expert_parallel_size, row_sharing=row_sharing)
        place = RankPlace(split=split, collective=collective)
        decoder = Decoder.load(card, dtype, "cpu", weights=weights, place=place)
        return generate(moved(decoder), prompts, chunk_tokens)

    return run_ranks(num_ranks, work)


def assert_one_decoder(
    ranks: list[Answers], alone: Answers, close: dict[str, float] | None = None
) -> None:
    """All ranks have the same bits, and near those of one decoder; the tokens are the same."""
    for answers in ranks[1:]:
        for (tokens, logits), (first_tokens, first) in zip(answers, ranks[0], strict=True):
            assert tokens == first_tokens
            assert torch.equal(logits, first)
    for (tokens, logits), (expected_tokens, expected) in zip(ranks[0], alone, strict=True):
        assert tokens == expected_tokens
        torch.testing.assert_close(logits, expected, **(CLOSE if close is None else close))
