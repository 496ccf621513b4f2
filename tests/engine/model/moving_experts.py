"""Decoders whose experts change their ranks while sequences are under way."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any, cast

import torch

from cluster.models.expert_placement import ExpertPlacement
from cluster.sharding import RowSharing
from engine.model.decoder import Decoder
from ranks.collectives.group_collective import GroupCollective
from tests.engine.model.folder_card import folder_card
from tests.engine.model.parity import generate
from tests.engine.model.rank_decoders import rank_decoder


def shuffled(placement: ExpertPlacement, seed: int) -> ExpertPlacement:
    """The next generation, by chance; the same at all ranks."""
    groups = list(placement.groups)
    random.Random(seed).shuffle(groups)
    return placement.changed_to(groups)


class MovingDecoder:
    """A Decoder of which one layer after the other is exchanged, one after each step."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._layers = itertools.cycle(sorted(decoder.experts.placements))

    def __getattr__(self, name: str) -> object:
        return getattr(self._decoder, name)

    def forward(self, *step: Any) -> torch.Tensor:
        """As the decoder's, whose next step finds some experts elsewhere."""
        logits = self._decoder.forward(*step)
        experts, layer = self._decoder.experts, next(self._layers)
        placement = shuffled(experts.placements[layer], seed=layer)
        experts.stage(layer, placement).read_all()
        assert self._decoder.place_experts(layer, placement)
        return logits


def moving(decoder: Decoder) -> Decoder:
    """For `answers_of_ranks`."""
    return cast(Decoder, MovingDecoder(decoder))


def tokens_of_rank(
    collective: GroupCollective, folder: str, prompts: list[list[int]], row_sharing: RowSharing
) -> list[list[int]]:
    """What a rank in a process of its own decodes, by the model in `folder`, while experts move."""
    card = folder_card(Path(folder))
    decoder = rank_decoder(card, collective.rank, collective, row_sharing=row_sharing)
    return [tokens for tokens, _ in generate(moving(decoder), prompts, 13)]
