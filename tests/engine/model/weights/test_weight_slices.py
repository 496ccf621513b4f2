"""A part of a stored matrix is the part of the whole, to the bit, and no more of it is read."""

from __future__ import annotations

import math
from pathlib import Path

import gguf
import pytest
import torch

from cluster.errors import ConfigError
from cluster.models.card import QuantizationConfig, QuantMethod
from cluster.models.column_unit import column_unit, declared_matrices, fitting_split
from cluster.models.footprint import held_parameters
from cluster.models.gguf.types import GROUPS
from cluster.models.model_split import ModelSplit
from cluster.models.tensor_part import WHOLE, TensorPart
from cluster.sharding import Rank
from engine.contract.weight_format import WeightFormat
from engine.model.weights.decoder_weights import DecoderWeights
from engine.model.weights.gguf_checkpoint import GgufCheckpoint
from engine.model.weights.open_checkpoint import fitted_split, open_checkpoint
from engine.model.weights.quantized_checkpoint import QuantizedCheckpoint
from kernels.weights import GroupedWeight, plain
from tests.engine.model.rank_decoders import rank_split
from tests.engine.model.test_rank_quantized import quantized_folder, quantized_gguf
from tests.engine.model.tiny_llama import decoder_config, random_model, saved_card, tiny_config
from tests.engine.model.weights import quantized_files as files
from tests.engine.model.weights.quantized_files import Stored
from tests.engine.model.weights.test_gguf_blocks import random_blocks
from tests.engine.model.weights.test_quantized_weights import (
    COMPRESSED,
    FOLDERS,
    FP8,
    FP8_BLOCKS,
    GPTQ,
    GROUPED,
    Tensors,
    matrix,
)
from tests.engine.model.weights.test_weights import write_gguf

NAME = "model.up_proj.weight"
SCATTERED = files.scattered(256, 32)
BLOCKS = QuantizationConfig(method=QuantMethod.FP8, bits=8, group=32, is_float=True, block=(16, 32))
STORED: dict[str, tuple[Stored, QuantizationConfig]] = {
    **{name: (stored, quantization) for name, (stored, quantization, _) in GROUPED.items()},
    "gptq in activation order": (files.gptq(matrix(), group_of=SCATTERED), GPTQ),
    "packed in activation order": (files.packed(matrix(), group_of=SCATTERED), COMPRESSED),
    "floats": (files.fp8(matrix(), scale_shape=(1,)), FP8),
    "floats in blocks": (files.fp8(matrix(), block=(16, 32)), BLOCKS),
    "floats in blocks that do not go round": (
        files.fp8(matrix(200, 300), block=(128, 128), scale_part="weight_scale_inv"),
        FP8_BLOCKS,
    ),
}


def parts_of(shape: tuple[int, ...]) -> list[TensorPart]:
    """Halves, and runs that cut words, groups and blocks."""
    rows, columns = shape
    return [
        TensorPart(rows=range(rows // 2, rows)),
        TensorPart(columns=range(columns // 2)),
        TensorPart(columns=range(columns // 2, columns)),
        TensorPart(rows=range(3, rows - 5), columns=range(4, columns - 8)),
        TensorPart(rows=range(1, 2), columns=range(columns - 3, columns)),
    ]


def opened(case: str) -> tuple[QuantizedCheckpoint, Tensors]:
    (parts, _), quantization = STORED[case]
    tensors = Tensors({f"model.up_proj.{part}": tensor for part, tensor in parts.items()})
    return QuantizedCheckpoint(tensors, quantization, ()), tensors


@pytest.mark.parametrize("case", STORED)
def test_parts_of_quantized_matrices_are_exact(case: str) -> None:
    checkpoint, _ = opened(case)
    whole = plain(checkpoint.read_weight(NAME))
    for part in parts_of(checkpoint.shape(NAME)):
        rows, columns = part.within(whole.shape)
        expected = whole[rows.start : rows.stop, columns.start : columns.stop]
        found = checkpoint.read_weight(NAME, part)
        assert found.shape == expected.shape
        assert torch.equal(plain(found), expected), part


@pytest.mark.parametrize("part", [TensorPart(rows=range(32)), TensorPart(columns=range(128))])
@pytest.mark.parametrize("case", [c for c in STORED if STORED[c][0][1].shape == (64, 256)])
def test_half_a_matrix_reads_half_of_its_values_and_at_most_all_scales(
    case: str, part: TensorPart
) -> None:
    """Scales, zero points and the index of groups are a fifth of these small files at most."""
    checkpoint, tensors = opened(case)
    checkpoint.read_weight(NAME)
    whole, tensors.num_bytes_read = tensors.num_bytes_read, 0
    checkpoint.read_weight(NAME, part)
    assert tensors.num_bytes_read < 0.65 * whole


@pytest.mark.parametrize("kind", ["Q4_0", "Q5_1", "Q8_0", "F16", "F32"])
def test_parts_of_a_gguf_are_exact_and_whole_heads_stay_in_order(kind: str, tmp_path: Path) -> None:
    quantization = gguf.GGMLQuantizationType[kind]
    model = random_model(tiny_config(attention_bias=kind == "F32"))
    checkpoint = open_checkpoint(write_gguf(model, tmp_path / "m.gguf", quantization))
    for name in checkpoint.names():
        whole, shape = checkpoint.read(name), checkpoint.shape(name)
        parts = [TensorPart(rows=range(32, min(64, shape[0])))]
        if len(shape) == 2:
            parts += [TensorPart(columns=range(32, 96)), TensorPart(range(32), range(16, 76))]
        for part in parts:
            runs = part.within(shape)
            expected = whole[tuple(slice(run.start, run.stop) for run in runs)]
            assert torch.equal(checkpoint.read(name, part), expected)
            if len(shape) == 2:
                assert torch.equal(plain(checkpoint.read_weight(name, part)), expected)


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K"])
def test_parts_of_blocks_of_256_are_exact_where_they_cut_one(kind: str, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "qwen2")
    quantization = gguf.GGMLQuantizationType[kind]
    writer.add_tensor("blk.0.ffn_down.weight", random_blocks(kind), raw_dtype=quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    config = decoder_config(tiny_config())
    checkpoint = GgufCheckpoint([tmp_path / "m.gguf"], "qwen2", config)
    name = "model.layers.0.mlp.down_proj.weight"
    assert checkpoint.inputs_per_scale(name) == GROUPS[kind][1]
    whole = checkpoint.read(name)
    for columns in (range(256, 768), range(128, 384), range(32), range(96, 704)):
        part = TensorPart(rows=range(5, 20), columns=columns)
        expected = whole[5:20, columns.start : columns.stop]
        assert torch.equal(checkpoint.read(name, part), expected)
        weight = checkpoint.read_weight(name, part)
        assert isinstance(weight, GroupedWeight)
        assert weight.group == GROUPS[kind][1]
        assert torch.equal(weight.dequantize(), expected)


def test_parts_of_safetensors_are_exact(tmp_path: Path) -> None:
    model = random_model(tiny_config(attention_bias=True))
    checkpoint = open_checkpoint(saved_card(model, tmp_path))
    for name, tensor in model.model.named_parameters(prefix="model"):
        for part in (WHOLE, TensorPart(rows=range(5, 32))):
            (rows, *_) = part.within(tensor.shape)
            assert torch.equal(checkpoint.read(name, part), tensor[rows.start : rows.stop])
    down = "model.layers.1.mlp.down_proj.weight"
    expected = model.model.layers[1].mlp.down_proj.weight[:, 17:40]
    assert torch.equal(checkpoint.read(down, TensorPart(columns=range(17, 40))), expected)


def test_ranks_hold_their_parts_and_nothing_more(tmp_path: Path) -> None:
    card = saved_card(random_model(tiny_config(attention_bias=True, mlp_bias=True)), tmp_path)
    device = torch.device("cpu")
    ranks = [
        DecoderWeights(card, torch.float32, device, split=rank_split(card, Rank(at, 2)))
        for at in range(2)
    ]
    layers = [weights.layer(1) for weights in ranks]
    whole = DecoderWeights(card, torch.float32, device).layer(1)
    assert torch.equal(
        torch.cat([plain(layer.attention.o) for layer in layers], 1), plain(whole.attention.o)
    )
    assert [layer.attention.qkv.shape for layer in layers] == [(5 * 32, 96)] * 2
    assert [layer.feed_forward.gate_up.shape for layer in layers] == [(96, 96)] * 2
    assert [layer.feed_forward.down.shape for layer in layers] == [(96, 48)] * 2
    assert [layer.attention.o_bias is None for layer in layers] == [False, True]
    assert [layer.feed_forward.down_bias is None for layer in layers] == [False, True]
    assert [weights.embedding().shape for weights in ranks] == [(31, 96)] * 2
    assert not plain(ranks[1].embedding())[30].any()


@pytest.mark.parametrize(
    ("group", "inputs", "form", "unit"),
    [
        (None, 96, WeightFormat.STORED, 1),
        (None, 96, WeightFormat.FULL, 1),
        (32, 96, WeightFormat.FULL, 1),
        (None, 96, WeightFormat.INT8, 32),
        (None, 80, WeightFormat.INT8, 1),
        (128, 256, WeightFormat.STORED, 32),
        (16, 256, WeightFormat.STORED, 32),
        (12, 96, WeightFormat.STORED, 12),
    ],
)
def test_what_is_multiplied_in_groups_is_shared_out_in_groups(
    group: int | None, inputs: int, form: WeightFormat, unit: int
) -> None:
    assert column_unit(group, inputs, form) == unit


def test_ranks_that_would_cut_a_group_between_two_heads_are_refused_with_what_fits(
    tmp_path: Path,
) -> None:
    model = random_model(tiny_config(num_attention_heads=8, num_key_value_heads=8, head_dim=24))
    card = saved_card(model, tmp_path)
    with pytest.raises(ConfigError, match="use one of 1, 2 ranks, or full weights"):
        rank_split(card, Rank(0, 4), WeightFormat.INT8)
    rank_split(card, Rank(0, 2), WeightFormat.INT8)
    rank_split(card, Rank(0, 4))


@pytest.mark.parametrize(("index", "width"), [(0, 32), (1, 64)])
def test_a_rank_plans_with_the_columns_that_its_loader_holds(
    index: int, width: int, tmp_path: Path
) -> None:
    """96 inner columns are three groups of 32; in halves they would be 48 each."""
    card, form = saved_card(random_model(tiny_config()), tmp_path), WeightFormat.INT8
    split = rank_split(card, Rank(index, 2), form)
    weights = DecoderWeights(card, torch.float32, torch.device("cpu"), form, split=split)
    layers = [weights.layer(at) for at in range(card.config.num_layers)]
    assert [layer.feed_forward.down.shape for layer in layers] == [(96, width)] * len(layers)
    matrices = [
        matrix.shape
        for layer in layers
        for matrix in (
            layer.attention.qkv,
            layer.attention.o,
            layer.feed_forward.gate_up,
            layer.feed_forward.down,
        )
    ]
    assert held_parameters(split).matrices == sum(map(math.prod, matrices))


@pytest.mark.parametrize("form", [WeightFormat.STORED, WeightFormat.FULL, WeightFormat.INT4])
@pytest.mark.parametrize("case", [*FOLDERS, "Q4_0", "Q5_1", "Q8_0", "F16"])
def test_what_a_card_declares_shares_columns_out_as_the_files_do(
    case: str, form: WeightFormat, tmp_path: Path
) -> None:
    """So that a model can be sized before it is opened."""
    card = quantized_folder(case, tmp_path) if case in FOLDERS else quantized_gguf(case, tmp_path)
    asked = ModelSplit(config=card.config, rank=Rank(1, 2))
    assert fitting_split(asked, form, declared_matrices(card)) == fitted_split(card, asked, form)
