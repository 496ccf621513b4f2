"""Who holds what of a model: every number where the split says, and bytes that add up."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ConfigError
from cluster.models.card import DecoderConfig
from cluster.models.expert_placement import in_runs
from cluster.models.footprint import footprint, held_parameters, parameters
from cluster.models.model_split import ModelSplit, inner_unit
from cluster.models.stored_tensor import Share
from cluster.models.tensor_part import WHOLE, TensorPart, inside_units, times, units_of
from cluster.models.tensors import EMBEDDING, LM_HEAD, expected_shapes, expected_tensors
from cluster.sharding import HeadSplit, Rank, RowSharing, ranks_of
from tests.cluster.models.configs import DEEPSEEK_V3, LLAMA_3_70B, SMOLLM2

EVERY_BIAS = replace(
    SMOLLM2, num_layers=2, attention_bias=True, output_bias=True, mlp_bias=True, has_qk_norm=True
)
FEW_LAYERS = replace(DEEPSEEK_V3, num_layers=5)
SIZES = (1, 2, 3, 4, 6, 8, 9)
GROUPS: list[tuple[DecoderConfig, int, int | None]] = [
    *((SMOLLM2, size, None) for size in SIZES),
    *((EVERY_BIAS, size, None) for size in (1, 2, 3, 9)),
    *((LLAMA_3_70B, size, None) for size in (*SIZES, 16)),
    *((FEW_LAYERS, size, None) for size in (*SIZES, 16)),
    *((FEW_LAYERS, size, experts) for size, experts in ((4, 1), (4, 2), (6, 2), (6, 3))),
    *((FEW_LAYERS, size, experts) for size, experts in ((8, 2), (8, 4), (9, 3))),
]
WHOLE_EVERYWHERE = ("norm.weight", "layernorm.weight", "mlp.gate.weight", "score_correction_bias")


def splits(config: DecoderConfig, size: int, experts: int | None) -> list[ModelSplit]:
    return [
        ModelSplit(config=config, rank=rank, expert_parallel_size=experts)
        for rank in ranks_of(size)
    ]


def owners_of(name: str, shape: tuple[int, ...], config: DecoderConfig, size: int) -> np.ndarray:
    """How many ranks are to hold each row of a tensor, or each column of one that is summed."""
    if name.endswith(WHOLE_EVERYWHERE) or "_a_proj" in name:
        return np.full(shape[0], size)
    if name.endswith(("k_proj.weight", "v_proj.weight", "k_proj.bias", "v_proj.bias")):
        heads = HeadSplit(
            num_heads=config.num_heads, num_kv_heads=config.num_kv_heads, world_size=size
        )
        holders = [len(heads.holders(head)) for head in range(config.num_kv_heads)]
        return np.repeat(holders, config.head_dim)
    is_summed = name.endswith(("o_proj.weight", "down_proj.weight"))
    return np.ones(shape[1 if is_summed else 0], dtype=int)


def found_owners(name: str, shape: tuple[int, ...], group: list[ModelSplit]) -> np.ndarray:
    is_summed = name.endswith(("o_proj.weight", "down_proj.weight"))
    found = np.zeros(shape[1 if is_summed else 0], dtype=int)
    for split in group:
        part = split.part(name)
        if part is not None:
            runs = part.within(shape)
            along = runs[1] if is_summed else runs[0]
            found[along.start : along.stop] += 1
            assert part.num_values(shape) == len(along) * (math.prod(shape) // len(found))
    return found


@pytest.mark.parametrize(("config", "size", "experts"), GROUPS)
def test_every_number_of_a_model_is_held_by_those_that_compute_with_it_and_bytes_add_up(
    config: DecoderConfig, size: int, experts: int | None
) -> None:
    group, total = splits(config, size, experts), 0
    for name, shape in expected_shapes(config).items():
        owners = owners_of(name, shape, config, size)
        assert np.array_equal(found_owners(name, shape, group), owners), name
        total += int(owners.sum()) * (math.prod(shape) // len(owners))
        if name in (EMBEDDING, LM_HEAD):
            total += (size * group[0].vocab_height - config.vocab_size) * config.hidden_size
    assert sum(held_parameters(split).total for split in group) == total


@pytest.mark.parametrize(("config", "size", "experts"), GROUPS)
def test_no_rank_holds_more_than_the_last(
    config: DecoderConfig, size: int, experts: int | None
) -> None:
    needs = [
        footprint(split, dtype="bfloat16", weights="full", kv="auto", stored_bytes=None)
        for split in splits(config, size, experts)
    ]
    biases = 4 * 2 * config.num_layers * config.hidden_size  # rank 0 alone has those of sums
    assert max(need.weight_bytes for need in needs) <= needs[-1].weight_bytes + biases
    assert max(need.kv_bytes_per_token for need in needs) == needs[-1].kv_bytes_per_token


def test_eight_ranks_hold_an_eighth_of_a_70b_each_and_its_norms() -> None:
    norms = (2 * 80 + 1) * 8192
    for split in splits(LLAMA_3_70B, 8, None):
        held = held_parameters(split)
        assert held.total == (parameters(LLAMA_3_70B).total - norms) // 8 + norms
        assert split.kv_shape.token_bytes(dtype="bfloat16", kv="auto") == 80 * 2 * 128 * 2


def test_sixteen_ranks_hold_all_of_deepseek_v3_and_its_latents_sixteen_times() -> None:
    """671 billion numbers, of which norms, routers and latents are at every rank."""
    tensors = expected_tensors(DEEPSEEK_V3).values()
    whole = [math.prod(tensor.shape) for tensor in tensors if tensor.share is Share.WHOLE]
    total = sum(held_parameters(split).total for split in splits(DEEPSEEK_V3, 16, None))
    assert parameters(DEEPSEEK_V3).total == 671_026_419_200
    assert total == parameters(DEEPSEEK_V3).total + 15 * sum(whole)


def test_a_rank_of_deepseek_v3_has_a_run_of_experts_and_all_of_the_latents() -> None:
    split = ModelSplit(config=DEEPSEEK_V3, rank=Rank(3, 8))
    assert split.experts == tuple(range(96, 128))
    assert split.heads == range(48, 64)
    assert split.kv_shape == DEEPSEEK_V3.kv_shape
    assert split.part("model.layers.9.mlp.experts.95.up_proj.weight") is None
    assert split.part("model.layers.9.mlp.experts.96.up_proj.weight") == TensorPart(
        rows=range(2048)
    )
    assert split.part("model.layers.9.self_attn.o_proj.weight") == TensorPart(
        columns=range(48 * 128, 64 * 128)
    )
    assert split.part("model.layers.9.self_attn.kv_a_proj_with_mqa.weight") == WHOLE


def test_experts_are_where_a_placement_says() -> None:
    groups = [expert % 2 for expert in range(256)]
    placement = in_runs(256, 2).changed_to(groups)
    even, odd = (replace(split, placement=placement) for split in splits(FEW_LAYERS, 2, 2))
    assert even.experts == tuple(range(0, 256, 2))
    expert = "model.layers.4.mlp.experts.7.up_proj.weight"
    assert even.part(expert) is None
    assert odd.part(expert) == TensorPart(rows=range(2048))


def test_placements_move_parameters_and_add_none() -> None:
    placement = in_runs(256, 2).changed_to([expert % 2 for expert in range(256)])
    for split in splits(FEW_LAYERS, 2, 2):
        assert held_parameters(replace(split, placement=placement)) == held_parameters(split)


def test_shared_experts_are_whole_at_ranks_that_send_rows() -> None:
    shared = "model.layers.4.mlp.shared_experts.down_proj.weight"
    for split in splits(FEW_LAYERS, 2, 2):
        assert split.part(shared) != WHOLE
        assert replace(split, row_sharing=RowSharing.SPLIT).part(shared) == WHOLE


@pytest.mark.parametrize(("num_ranks", "groups"), [(2, 2), (4, 2), (256, None)])
def test_with_data_parallel_attention_all_but_routed_experts_is_whole(
    num_ranks: int, groups: int | None
) -> None:
    found = [
        ModelSplit(
            config=FEW_LAYERS,
            rank=Rank(index, num_ranks),
            expert_parallel_size=groups,
            row_sharing=RowSharing.OWN,
        )
        for index in (0, num_ranks - 1)
    ]
    by_heads = [
        ModelSplit(config=FEW_LAYERS, rank=split.rank, expert_parallel_size=groups)
        for split in found
        if num_ranks <= FEW_LAYERS.num_heads
    ]
    for name, tensor in expected_tensors(FEW_LAYERS).items():
        parts = [split.part(name) for split in found]
        if tensor.expert is None:
            assert parts == [WHOLE] * 2
        elif by_heads:
            assert parts == [split.part(name) for split in by_heads]
    for split in found:
        assert split.tokens == range(FEW_LAYERS.vocab_size)
        assert len(split.heads) == FEW_LAYERS.num_heads
        assert split.kv_shape == FEW_LAYERS.kv_shape


def test_groups_of_ranks_share_their_experts_columns() -> None:
    expert = "model.layers.4.mlp.experts.130.down_proj.weight"
    parts = [split.part(expert) for split in splits(FEW_LAYERS, 4, 2)]
    assert parts[:2] == [None, None]
    assert parts[2:] == [TensorPart(columns=range(1024)), TensorPart(columns=range(1024, 2048))]


def test_more_ranks_than_experts_share_them_by_columns_unless_asked_otherwise() -> None:
    assert DEEPSEEK_V3.mixture is not None
    few = replace(FEW_LAYERS, mixture=replace(DEEPSEEK_V3.mixture, num_experts=4, num_groups=1))
    assert ModelSplit(config=few, rank=Rank(0, 8)).expert_groups == 4
    with pytest.raises(ConfigError, match="to 8 groups of 8 ranks; use one of 1, 2, 4"):
        ModelSplit(config=few, rank=Rank(0, 8), expert_parallel_size=8)


def test_uneven_heads_are_shared_out_with_their_keys() -> None:
    first, second = splits(SMOLLM2, 2, None)
    assert (first.heads, second.heads) == (range(3), range(3, 9))
    assert (first.kv_heads, second.kv_heads) == (range(1), range(1, 3))
    tokens = [split.kv_shape.token_bytes(dtype="bfloat16", kv="auto") for split in (first, second)]
    assert sum(tokens) == SMOLLM2.kv_shape.token_bytes(dtype="bfloat16", kv="auto")


def test_the_last_ranks_vocabulary_is_filled_up() -> None:
    held = [split.tokens for split in splits(replace(SMOLLM2, vocab_size=97), 9, None)]
    assert [len(tokens) for tokens in held] == [11] * 8 + [9]
    assert [len(split.tokens) for split in splits(replace(SMOLLM2, vocab_size=10), 8, None)] == [
        *([2] * 5),
        *([0] * 3),
    ]


@pytest.mark.parametrize(
    ("width", "least", "ranks", "unit"),
    [(14336, 1, 8, 256), (1536, 32, 4, 128), (1536, 1, 9, 32), (96, 1, 4, 8), (96, 32, 2, 32)],
)
def test_inner_columns_are_even_where_they_can_be_and_in_panels_where_not(
    width: int, least: int, ranks: int, unit: int
) -> None:
    assert inner_unit(width, least, ranks) == unit


@pytest.mark.parametrize(
    ("width", "ranks", "shares"),
    [(768, 16, {32, 64}), (1408, 8, {160, 192}), (4864, 16, {288, 320}), (1536, 4, {384})],
)
def test_columns_of_quantized_matrices_are_shared_out_in_whole_groups(
    width: int, ranks: int, shares: set[int]
) -> None:
    config = replace(LLAMA_3_70B, intermediate_size=width)
    group = [ModelSplit(config=config, rank=rank, column_unit=32) for rank in ranks_of(ranks)]
    assert {len(split.columns(width)) for split in group} == shares
    assert sum(len(split.columns(width)) for split in group) == width


@pytest.mark.parametrize("rank", [Rank(0, 1), Rank(1, 2)])
@pytest.mark.parametrize(
    "name",
    ["self_attn.qkv_proj.weight", "mlp.gate_up_proj.weight", "self_attn.q_proj.bias", "rotary"],
)
def test_a_tensor_that_no_table_names_has_no_part(rank: Rank, name: str) -> None:
    split = ModelSplit(config=LLAMA_3_70B, rank=rank)
    with pytest.raises(KeyError, match=name):
        split.part(f"model.layers.3.{name}")


def test_a_model_without_experts_has_no_groups_of_them() -> None:
    with pytest.raises(ConfigError, match="has no routed experts"):
        ModelSplit(config=LLAMA_3_70B, rank=Rank(0, 8), expert_parallel_size=2)


def test_columns_that_do_not_go_round_are_refused() -> None:
    split = ModelSplit(config=SMOLLM2, rank=Rank(0, 8), column_unit=512)
    with pytest.raises(ConfigError, match="in units of 512 cannot be shared by 8 ranks"):
        split.part("model.layers.0.mlp.up_proj.weight")


@st.composite
def runs(draw: st.DrawFn) -> range:
    start = draw(st.integers(0, 500))
    return range(start, start + draw(st.integers(1, 500)))


@given(run=runs(), size=st.integers(1, 64))
def test_a_run_is_found_in_the_units_that_hold_it(run: range, size: int) -> None:
    held = times(units_of(run, size), size)
    assert list(held)[inside_units(run, size)] == list(run)
    assert held.start > run.start - size
    assert held.stop < run.stop + size


def test_a_part_that_lies_outside_of_its_tensor_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"of a tensor of shape \(4, 8\)"):
        TensorPart(columns=range(4, 9)).within((4, 8))


@pytest.mark.parametrize("weights", ["full", "int8", "int4", "fp8"])
def test_a_stored_model_takes_its_files_shared_out_and_others_their_formats(weights: str) -> None:
    whole = ModelSplit(config=SMOLLM2)
    parts = splits(SMOLLM2, 3, None)
    alone = footprint(whole, dtype="bfloat16", weights=weights, kv="int8", stored_bytes=None)
    shared = [
        footprint(split, dtype="bfloat16", weights=weights, kv="int8", stored_bytes=None)
        for split in parts
    ]
    norms = 61 * 576 * 4
    assert sum(need.weight_bytes for need in shared) == pytest.approx(
        alone.weight_bytes + 2 * norms, abs=3
    )
    stored = [
        footprint(split, dtype="bfloat16", weights="stored", kv="int8", stored_bytes=9_000_000)
        for split in parts
    ]
    assert all(2_990_000 < need.weight_bytes < 3_010_000 for need in stored)
