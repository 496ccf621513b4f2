"""Two ranks that serve while their conductor moves experts, from the count to the exchange."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import pytest
import torch

from cluster.models.card import ModelCard
from cluster.sharding import RowSharing
from engine.model.decoder import Decoder
from engine.model.experts import rebalancer as rebalancer_module
from engine.model.experts.balancing import Balancing
from engine.model.experts.rank_experts import RankExperts
from engine.model.experts.rebalancer import Rebalancer
from engine.model.experts.words import unpack
from engine.model.weights.decoder_weights import DecoderWeights
from tests.engine.model.experts.test_rebalancer import INTERVAL_S, StoppedClock
from tests.engine.model.mixture_cards import PROMPTS, deepseek_card
from tests.engine.model.parity import generate
from tests.engine.model.rank_decoders import Answers, assert_one_decoder, rank_decoder
from tests.kernels.ranks import LIMIT_S, ThreadRank, run_ranks

Words = SimpleQueue[bytes | None]
"""What the conductor tells the other rank before a step; None: the step."""


class Conductor:
    """Rank 0's decoder: between two of its steps ten seconds pass, and words are said."""

    def __init__(self, decoder: Decoder, words: Words, all_read: threading.Barrier) -> None:
        self._decoder, self._words, self._all_read = decoder, words, all_read
        self._clock, self._own = StoppedClock(), RankExperts(decoder.experts)
        rebalancer = Rebalancer(decoder.experts.placements, INTERVAL_S, clock=self._clock)
        self.balancing = Balancing(rebalancer, self._own, words.put)

    def __getattr__(self, name: str) -> object:
        return getattr(self._decoder, name)

    def forward(self, *step: Any) -> torch.Tensor:
        """A turn, then the step."""
        self._clock.now_s += 10.0
        self.balancing.turn()
        self._words.put(None)
        assert self._own.wait(LIMIT_S)
        self._all_read.wait(LIMIT_S)
        return self._decoder.forward(*step)


class Follower:
    """The other rank's, which follows what was said before its step."""

    def __init__(self, decoder: Decoder, words: Words, all_read: threading.Barrier) -> None:
        self._decoder, self._words, self._all_read = decoder, words, all_read
        self._own = RankExperts(decoder.experts)

    def __getattr__(self, name: str) -> object:
        return getattr(self._decoder, name)

    def forward(self, *step: Any) -> torch.Tensor:
        """Words, then the step."""
        while (body := self._words.get(timeout=LIMIT_S)) is not None:
            self._own.follow(unpack(body))
        assert self._own.wait(LIMIT_S)
        self._all_read.wait(LIMIT_S)
        return self._decoder.forward(*step)


def serve(
    card: ModelCard, row_sharing: RowSharing, prepare: Callable[[int, Decoder], None]
) -> tuple[list[Answers], Balancing]:
    """Of both ranks, and the conductor's view."""
    words: Words = SimpleQueue()
    all_read = threading.Barrier(2)
    seen: list[Balancing] = []

    def work(index: int, collective: ThreadRank) -> Answers:
        decoder = rank_decoder(card, index, collective, row_sharing=row_sharing)
        prepare(index, decoder)
        rank: Any = (Follower if index else Conductor)(decoder, words, all_read)
        if isinstance(rank, Conductor):
            seen.append(rank.balancing)
        return generate(cast(Decoder, rank), PROMPTS, 13)

    return run_ranks(2, work), seen[0]


@pytest.fixture(autouse=True)
def few_picks_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model that nobody has trained any imbalance is by chance, and small."""
    monkeypatch.setattr(rebalancer_module, "LEAST_PICKS", 1)


def nothing(index: int, decoder: Decoder) -> None:
    """No change."""


@pytest.mark.parametrize("row_sharing", [RowSharing.ALL, RowSharing.SPLIT])
def test_layers_are_rebalanced_while_sequences_go_on_and_no_token_changes(
    row_sharing: RowSharing, tmp_path: Path
) -> None:
    card = deepseek_card(tmp_path)
    ranks, balancing = serve(card, row_sharing, nothing)
    alone = generate(Decoder.load(card, torch.float32, "cpu"), PROMPTS, 13)
    assert_one_decoder(ranks, alone)
    assert balancing.balance.num_rebalances >= 2
    assert balancing.balance.num_failures == 0
    assert set(balancing.balance.imbalance) == {1, 2, 3}


def test_a_rank_that_cannot_read_stops_the_rebalance_and_nothing_else(tmp_path: Path) -> None:
    card = deepseek_card(tmp_path)

    def unreadable(*_: object) -> DecoderWeights:
        raise OSError("the disk is away")

    def prepare(index: int, decoder: Decoder) -> None:
        source = decoder.experts._source
        if index == 1 and source is not None:
            decoder.experts._source = replace(source, reopen=unreadable)

    ranks, balancing = serve(card, RowSharing.ALL, prepare)
    alone = generate(Decoder.load(card, torch.float32, "cpu"), PROMPTS, 13)
    assert_one_decoder(ranks, alone)
    assert balancing.balance.num_rebalances == 0
    assert balancing.balance.num_failures >= 1
