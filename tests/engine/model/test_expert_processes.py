"""A mixture in processes of their own, over the collectives that serve: experts move meanwhile."""

from __future__ import annotations

import ctypes
from functools import partial
from pathlib import Path

import pytest
import torch

from cluster.sharding import RowSharing
from engine.model.decoder import Decoder
from ranks.collectives.rendezvous import CollectiveKind, MeetingPlace
from tests.engine.model.mixture_cards import PROMPTS, deepseek_card
from tests.engine.model.moving_experts import tokens_of_rank
from tests.engine.model.parity import generate
from tests.ranks.collectives.conftest import native_collectives
from tests.ranks.collectives.rank_processes import rank_processes

__all__ = ["native_collectives"]


@pytest.mark.parametrize("kind", [CollectiveKind.SHARED_MEMORY, CollectiveKind.GLOO])
def test_ranks_in_processes_give_the_tokens_of_one_decoder_by_both_exchanges(
    kind: CollectiveKind, native_collectives: ctypes.CDLL, tmp_path: Path
) -> None:
    card = deepseek_card(tmp_path)
    alone = generate(Decoder.load(card, torch.float32, "cpu"), PROMPTS, 13)
    expected = [tokens for tokens, _ in alone]
    with rank_processes(MeetingPlace.open(kind, 2, 1)) as group:
        for row_sharing in (RowSharing.ALL, RowSharing.SPLIT):
            work = partial(
                tokens_of_rank, folder=str(tmp_path), prompts=PROMPTS, row_sharing=row_sharing
            )
            assert group.run(work) == [expected, expected]
