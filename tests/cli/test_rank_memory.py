"""What ranks of large models would hold, and how few devices would do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cli.model_memory import FormatChoice
from cli.rank_memory import MOST_RANKS, GroupOptions, RankRow, rank_rows, smallest_group
from cluster.errors import ConfigError
from cluster.models.card import DecoderConfig, QuantizationConfig, QuantMethod
from cluster.models.column_unit import declared_matrices, fitting_split
from cluster.models.footprint import footprint, parameters
from cluster.models.model_split import ModelSplit
from cluster.sharding import ranks_of
from tests.cluster.models.configs import DEEPSEEK_V3, LLAMA_3_70B, card_of

GIB = 1 << 30
BFLOAT16 = FormatChoice(dtype="bfloat16", weights="full", kv="auto")
ONE = GroupOptions(tensor_parallel_size=1)
INT8 = FormatChoice(dtype="bfloat16", weights="int8", kv="int8")


def rows(config: DecoderConfig, choice: FormatChoice, size: int, **experts: Any) -> list[RankRow]:
    options = GroupOptions(tensor_parallel_size=size, **experts)
    return rank_rows(card_of(config), choice, options, 80 * GIB)


def test_eight_ranks_of_a_70b_hold_an_eighth_each() -> None:
    found = rows(LLAMA_3_70B, BFLOAT16, 8)
    assert [row.rank for row in found] == list(range(8))
    assert {(row.num_heads, row.num_kv_heads, row.num_experts) for row in found} == {(8, 1, 0)}
    assert {row.kv_bytes_per_token for row in found} == {80 * 2 * 128 * 2}
    eighth = 2 * parameters(LLAMA_3_70B).total / 8
    assert found[0].weight_bytes == pytest.approx(eighth, rel=1e-3)


def test_nine_ranks_keep_one_of_eight_kv_heads_twice() -> None:
    found = rows(LLAMA_3_70B, BFLOAT16, 9)
    assert [row.num_kv_heads for row in found] == [1] * 9
    assert sum(row.num_heads for row in found) == 64


def test_experts_of_deepseek_v3_are_dealt_out_to_as_many_groups_as_asked() -> None:
    alone, shared = (rows(DEEPSEEK_V3, INT8, 8, expert_parallel_size=n) for n in (8, 2))
    assert {row.num_experts for row in alone} == {32}
    assert {row.num_experts for row in shared} == {128}
    assert alone[0].weight_bytes == shared[0].weight_bytes
    assert {row.kv_bytes_per_token for row in alone} == {61 * (512 + 64 + 4)}


def test_ranks_that_send_rows_to_experts_hold_the_shared_ones_whole() -> None:
    gathered, sent = (
        rows(DEEPSEEK_V3, BFLOAT16, 8, expert_exchange=how)[0] for how in ("gather", "all-to-all")
    )
    shared = 58 * 3 * 2048 * 7168
    assert sent.weight_bytes - gathered.weight_bytes == 2 * shared * 7 // 8
    with pytest.raises(ConfigError, match="the model has no experts"):
        rows(LLAMA_3_70B, BFLOAT16, 8, expert_exchange="all-to-all")


def test_ranks_with_sequences_of_their_own_hold_all_but_the_experts() -> None:
    found = rows(DEEPSEEK_V3, BFLOAT16, 8, data_parallel_attention=True)
    assert {(row.num_heads, row.num_experts) for row in found} == {(128, 32)}
    routed = 58 * 256 * 3 * 2048 * 7168
    whole = parameters(DEEPSEEK_V3).total - routed
    assert found[0].weight_bytes == pytest.approx(2 * (whole + routed / 8), rel=2e-3)
    with pytest.raises(ConfigError, match="models with routed experts"):
        rows(LLAMA_3_70B, BFLOAT16, 8, data_parallel_attention=True)


def test_more_ranks_than_heads_may_have_sequences_of_their_own() -> None:
    assert len(rows(DEEPSEEK_V3, BFLOAT16, 256, data_parallel_attention=True)) == 256


def test_heads_that_nobody_shares_cut_no_group() -> None:
    odd = replace(DEEPSEEK_V3, num_heads=9, num_kv_heads=9)
    assert rows(odd, INT8, 4, data_parallel_attention=True)


def test_ranks_of_quantized_weights_hold_what_their_loader_will() -> None:
    """1408 columns in 44 groups of 32: some ranks have one more, of which some bytes too many would
    be counted, or too few, by eighths."""
    config = replace(LLAMA_3_70B, intermediate_size=1408)
    groups = QuantizationConfig(method=QuantMethod.GPTQ, bits=4, group=128)
    card = card_of(config, groups)
    options = GroupOptions(tensor_parallel_size=8)
    found = rank_rows(card, INT8, options, 80 * GIB)
    asked = [ModelSplit(config=config, rank=rank) for rank in ranks_of(8)]
    held = [fitting_split(split, "int8", declared_matrices(card)) for split in asked]
    assert {len(split.columns(1408)) for split in held} == {160, 192}
    needs = [
        footprint(split, dtype="bfloat16", weights="int8", kv="int8", stored_bytes=0)
        for split in held
    ]
    assert [row.weight_bytes for row in found] == [need.weight_bytes for need in needs]
    assert len({row.weight_bytes for row in found}) == 2


@pytest.mark.parametrize(
    ("size", "experts", "words"),
    [
        (65, None, "64 heads cannot be shared by 65 ranks; use at most 64"),
        (8, 3, "the model has no routed experts"),
    ],
)
def test_sizes_of_a_dense_model_that_cannot_be_had_are_named(
    size: int, experts: int | None, words: str
) -> None:
    options = GroupOptions(tensor_parallel_size=size, expert_parallel_size=experts)
    with pytest.raises(ConfigError, match=words):
        rank_rows(card_of(LLAMA_3_70B), BFLOAT16, options, 80 * GIB)


def test_groups_of_experts_that_cannot_be_had_are_named_with_those_that_can() -> None:
    with pytest.raises(ConfigError, match="to 3 groups of 8 ranks; use one of 1, 2, 4, 8"):
        rows(DEEPSEEK_V3, BFLOAT16, 8, expert_parallel_size=3)


def test_columns_that_do_not_go_round_are_named() -> None:
    narrow = replace(LLAMA_3_70B, intermediate_size=256)
    with pytest.raises(ConfigError, match="in units of 32 cannot be shared by 16 ranks"):
        rows(narrow, INT8, 16)


def test_heads_that_would_cut_a_group_are_named_with_the_sizes_that_do_not() -> None:
    odd = replace(LLAMA_3_70B, num_heads=8, num_kv_heads=8, head_dim=24)
    with pytest.raises(ConfigError, match="use one of 1, 2 ranks, or full weights"):
        rows(odd, INT8, 4)


def test_the_smallest_group_holds_a_whole_context_and_one_device_fewer_does_not() -> None:
    card = card_of(replace(LLAMA_3_70B, max_context_tokens=131072))
    usable = int(0.95 * 80 * GIB)
    found = smallest_group(card, BFLOAT16, ONE, usable)
    assert (found.num_ranks, found.max_context_tokens) == (3, 131072)
    fewer = rank_rows(card, BFLOAT16, GroupOptions(tensor_parallel_size=2), usable)
    assert min(row.max_context_tokens for row in fewer) < 131072
    enough = rank_rows(card, BFLOAT16, GroupOptions(tensor_parallel_size=3), usable)
    assert min(row.max_context_tokens for row in enough) == 131072


def test_where_no_group_holds_the_whole_context_the_first_that_holds_any_is_told() -> None:
    """A latent is whole at every rank: more of them hold no longer sequence beyond some size."""
    card = card_of(replace(DEEPSEEK_V3, max_context_tokens=1 << 24))
    found = smallest_group(card, INT8, ONE, int(0.95 * 80 * GIB))
    assert found.num_ranks is not None
    fewer = GroupOptions(tensor_parallel_size=found.num_ranks - 1)
    assert min(row.max_context_tokens for row in rank_rows(card, INT8, fewer, 76 * GIB)) == 0
    assert 0 < found.max_context_tokens < 1 << 24


def test_a_model_that_no_group_holds_is_told_so() -> None:
    found = smallest_group(card_of(DEEPSEEK_V3), BFLOAT16, ONE, GIB)
    assert (found.num_ranks, found.max_context_tokens) == (None, 0)
    assert MOST_RANKS == 64
