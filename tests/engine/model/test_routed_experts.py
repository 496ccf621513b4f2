"""How a layer's experts are exchanged at all ranks or at none, and what it takes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from cluster.errors import BadCheckpoint, InternalError
from cluster.models.card import ModelCard
from cluster.models.expert_placement import in_runs
from cluster.sharding import RowSharing
from engine.contract.weight_format import WeightFormat
from engine.model.decoder import Decoder
from engine.model.weights import decoder_weights
from tests.engine.model.mixture_cards import PROMPTS, card_of, deepseek_card
from tests.engine.model.moving_experts import moving, shuffled
from tests.engine.model.rank_decoders import answers_of_ranks, rank_decoder
from tests.kernels.ranks import LateRank, SameEverywhere, ThreadRank, run_ranks

LAYER = 2
NEXT = in_runs(8, 2).changed_to([0, 1, 0, 0, 1, 1, 0, 1])


def with_decoders(card: ModelCard, work: Callable[[int, Decoder], Any]) -> list[Any]:
    """At two ranks."""

    def run(index: int, collective: ThreadRank) -> Any:
        return work(index, rank_decoder(card, index, collective))

    return run_ranks(2, run)


def test_a_layer_is_exchanged_at_all_ranks_or_at_none(tmp_path: Path) -> None:
    def work(index: int, decoder: Decoder) -> list[object]:
        staging = decoder.experts.stage(LAYER, NEXT)
        if index == 0:
            staging.read_all()
        found: list[object] = [decoder.place_experts(LAYER, NEXT)]
        found.append(decoder.experts.placements[LAYER])
        staging.read_all()
        found.append(decoder.place_experts(LAYER, NEXT))
        found.append(decoder.experts.placements[LAYER])
        return found

    expected = [False, in_runs(8, 2), True, NEXT]
    assert with_decoders(deepseek_card(tmp_path), work) == [expected, expected]


def test_what_ranks_on_gpus_agree_on_is_read_when_it_is_there(tmp_path: Path) -> None:
    card = deepseek_card(tmp_path)

    def work(index: int, collective: ThreadRank) -> tuple[bool, int]:
        decoder = rank_decoder(card, index, collective, row_sharing=RowSharing.SPLIT)
        decoder.experts.stage(LAYER, NEXT).read_all()
        return decoder.place_experts(LAYER, NEXT), int(decoder.experts.total_picks().sum())

    assert run_ranks(2, work, LateRank) == [(True, 0), (True, 0)]


def test_a_rank_that_has_staged_nothing_holds_all_others_back(tmp_path: Path) -> None:
    def work(index: int, decoder: Decoder) -> bool:
        if index == 0:
            decoder.experts.stage(LAYER, NEXT).read_all()
        return decoder.place_experts(LAYER, NEXT)

    assert with_decoders(deepseek_card(tmp_path), work) == [False, False]


def test_ranks_that_mean_different_placements_are_told_so_before_anything_changes(
    tmp_path: Path,
) -> None:
    def work(index: int, decoder: Decoder) -> bool:
        mine = shuffled(in_runs(8, 2), seed=index)
        decoder.experts.stage(LAYER, mine).read_all()
        with pytest.raises(InternalError, match="do not mean the same placement"):
            decoder.place_experts(LAYER, mine)
        return decoder.experts.placements[LAYER] == in_runs(8, 2)

    assert with_decoders(deepseek_card(tmp_path), work) == [True, True]


def test_only_the_next_generation_of_a_layer_can_be_placed(tmp_path: Path) -> None:
    def work(index: int, decoder: Decoder) -> None:
        later = NEXT.changed_to(NEXT.groups)
        with pytest.raises(ValueError, match="generation 2 of layer 2, which is at 0"):
            decoder.experts.stage(LAYER, later)
        with pytest.raises(ValueError, match="a table of 6 experts for layer 2"):
            decoder.place_experts(LAYER, in_runs(6, 2).changed_to(in_runs(6, 2).groups))

    with_decoders(deepseek_card(tmp_path), work)


def test_a_rank_reads_only_what_it_gains_and_gives_the_rest_back(tmp_path: Path) -> None:
    def work(index: int, decoder: Decoder) -> None:
        before = decoder.num_bytes
        staging = decoder.experts.stage(LAYER, NEXT)
        gained = set(NEXT.held_by(index)) - set(in_runs(8, 2).held_by(index))
        assert staging.num_missing == len(gained) > 0
        of_one = 3 * 48 * 64 * 4
        steps = 0
        while staging.read_next():
            steps += 1
            assert steps * of_one <= staging.num_bytes
        assert staging.num_missing == 0
        assert decoder.place_experts(LAYER, NEXT)
        assert decoder.num_bytes == before

    with_decoders(deepseek_card(tmp_path), work)


def test_a_second_layer_that_is_staged_drops_the_first(tmp_path: Path) -> None:
    def work(index: int, decoder: Decoder) -> list[bool]:
        decoder.experts.stage(LAYER, NEXT).read_all()
        decoder.experts.stage(LAYER + 1, NEXT).read_all()
        return [decoder.place_experts(LAYER, NEXT), decoder.place_experts(LAYER + 1, NEXT)]

    assert with_decoders(deepseek_card(tmp_path), work) == [[False, True]] * 2


def test_a_checkpoint_that_cannot_be_read_for_a_while_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_: ModelCard) -> Any:
        raise BadCheckpoint("the disk is away")

    decoder = rank_decoder(deepseek_card(tmp_path), 0, SameEverywhere(2))
    staging = decoder.experts.stage(LAYER, NEXT)
    with monkeypatch.context() as broken:
        broken.setattr(decoder_weights, "open_checkpoint", unreadable)
        with pytest.raises(BadCheckpoint, match="the disk is away"):
            staging.read_next()
    assert staging.made is None
    staging.read_all()
    assert staging.made is not None


def test_many_exchanges_leave_nothing_behind(tmp_path: Path) -> None:
    """No matrix of a layer that was, no open file of the checkpoint."""
    decoder = rank_decoder(deepseek_card(tmp_path), 0, SameEverywhere(2))
    process = psutil.Process()

    def exchange(times: int) -> tuple[int, int, int]:
        for turn in range(times):
            placement = shuffled(decoder.experts.placements[LAYER], seed=turn)
            decoder.experts.stage(LAYER, placement).read_all()
            assert decoder.place_experts(LAYER, placement)
        gc.collect()
        tensors = sum(type(each) is torch.Tensor for each in gc.get_objects())
        return tensors, process.num_fds(), len(process.memory_maps())

    first, later = exchange(2), exchange(20)
    assert later[0] <= first[0]
    assert later[1] <= first[1]
    assert later[2] <= first[2] + 2  # the allocator's own


@pytest.mark.parametrize("form", [WeightFormat.INT8, WeightFormat.INT4])
def test_quantized_experts_move_as_plain_ones_do(form: WeightFormat, tmp_path: Path) -> None:
    card = card_of("mixtral", tmp_path)
    still = answers_of_ranks(card, PROMPTS[:1], 2, weights=form, row_sharing=RowSharing.SPLIT)
    moved = answers_of_ranks(
        card, PROMPTS[:1], 2, weights=form, row_sharing=RowSharing.SPLIT, moved=moving
    )
    assert [tokens for tokens, _ in moved[0]] == [tokens for tokens, _ in still[0]]
