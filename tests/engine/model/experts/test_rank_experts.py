"""What a rank does with words while its disk is slow: it goes on computing."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.models.expert_placement import in_runs
from cluster.sharding import RowSharing
from engine.model.decoder import Decoder
from engine.model.experts.rank_experts import RankExperts
from engine.model.experts.words import Drop, Measure, place, stage
from tests.engine.model.mixture_cards import PROMPTS, deepseek_card
from tests.engine.model.parity import generate
from tests.engine.model.rank_decoders import rank_decoder
from tests.kernels.ranks import LIMIT_S, ThreadRank, run_ranks

LAYER = 2
NEXT = in_runs(8, 2).changed_to([0, 1, 0, 0, 1, 1, 0, 1])


class SlowDisk:
    """Opens a rank's checkpoint once it is told to."""

    def __init__(self, decoder: Decoder) -> None:
        self.is_back = threading.Event()
        source = decoder.experts._source
        assert source is not None
        self._reopen = source.reopen
        decoder.experts._source = replace(source, reopen=self._open)

    def _open(self) -> Any:
        assert self.is_back.wait(LIMIT_S)
        return self._reopen()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("model")


def test_steps_go_on_while_one_rank_reads_and_the_layer_waits_for_it(folder: Path) -> None:
    card = deepseek_card(folder)

    def work(index: int, collective: ThreadRank) -> tuple[list[bool], bool]:
        decoder = rank_decoder(card, index, collective)
        disk, own = SlowDisk(decoder), RankExperts(decoder.experts)
        if index == 0:
            disk.is_back.set()
        before = generate(decoder, PROMPTS[:1], 13)
        own.follow(stage(LAYER, NEXT))
        meanwhile = generate(decoder, PROMPTS[:1], 13)
        outcomes = [own.follow(place(LAYER, NEXT)).is_placed]
        disk.is_back.set()
        assert own.wait(LIMIT_S)
        outcomes.append(own.follow(place(LAYER, NEXT)).is_placed)
        return outcomes, torch.equal(before[0][1], meanwhile[0][1])

    assert run_ranks(2, work) == [([False, True], True)] * 2


def test_what_was_dropped_while_it_was_read_is_never_placed(folder: Path) -> None:
    card = deepseek_card(folder)

    def work(index: int, collective: ThreadRank) -> list[bool]:
        decoder = rank_decoder(card, index, collective)
        disk, own = SlowDisk(decoder), RankExperts(decoder.experts)
        own.follow(stage(LAYER, NEXT))
        reading = own._reading
        assert reading is not None
        own.follow(Drop())
        disk.is_back.set()
        assert reading.join(LIMIT_S)
        outcomes = [own.follow(place(LAYER, NEXT)).is_placed]
        own.follow(stage(LAYER, NEXT))
        assert own.wait(LIMIT_S)
        outcomes.append(own.follow(place(LAYER, NEXT)).is_placed)
        return outcomes

    assert run_ranks(2, work) == [[False, True]] * 2


def test_all_ranks_measure_the_same(folder: Path) -> None:
    card = deepseek_card(folder)

    def work(index: int, collective: ThreadRank) -> list[list[int]]:
        decoder = rank_decoder(card, index, collective, row_sharing=RowSharing.SPLIT)
        generate(decoder, PROMPTS[:1], 13)
        picks = RankExperts(decoder.experts).follow(Measure()).picks
        assert picks is not None
        counted: list[list[int]] = picks.tolist()
        return counted

    first, second = run_ranks(2, work)
    assert first == second
    assert sum(map(sum, first)) > 0
