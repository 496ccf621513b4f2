"""Matrices in the form that a replica was asked to hold them in."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cluster.models.model_split import ModelSplit
from engine.contract.weight_format import WeightFormat
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from engine.model.weights.decoder_weights import DecoderWeights, MlpWeights
from engine.model.weights.open_checkpoint import open_checkpoint
from engine.model.weights.requantize import converted, of_ends
from engine.model.weights.weight_reader import WeightReader
from kernels.dispatch.kernel_sets import TORCH_CPU
from kernels.quantize import quantize_groups
from kernels.weight_rows import with_groups_of
from kernels.weights import Fp8Weight, GroupedWeight, Weight, plain
from tests.engine.model.tiny_llama import (
    BLOCK_SIZE,
    ragged_batch,
    random_model,
    saved_card,
    tiny_config,
)

FULL, STORED, INT8, INT4, FP8 = (
    WeightFormat.FULL,
    WeightFormat.STORED,
    WeightFormat.INT8,
    WeightFormat.INT4,
    WeightFormat.FP8,
)
CPU, FLOAT = torch.device("cpu"), torch.float32


def matrix(inputs: int = 96) -> torch.Tensor:
    return torch.randn(8, inputs, generator=torch.Generator().manual_seed(0))


def groups(bits: int, group: int = 32) -> GroupedWeight:
    """Values within 0 and 1 of a minimum that is within -0.5 and 0.5."""
    generator = torch.Generator().manual_seed(bits)
    shape = (8, 96 // group)
    return GroupedWeight(
        values=torch.randint(0, 2**bits, (8, 96), generator=generator, dtype=torch.uint8),
        scales=torch.rand(shape, generator=generator) / (2**bits - 1),
        minimums=torch.rand(shape, generator=generator) - 0.5,
        bits=bits,
        dtype=FLOAT,
    )


@pytest.mark.parametrize("weight", [matrix(), groups(4), groups(8)])
def test_full_is_plain(weight: Weight) -> None:
    full = converted(weight, FULL, FLOAT)
    assert isinstance(full, torch.Tensor)
    assert torch.equal(full, plain(weight))


@pytest.mark.parametrize("weight", [matrix(), groups(4), groups(6, 96)])
def test_stored_is_what_it_was(weight: Weight) -> None:
    assert converted(weight, STORED, FLOAT) is weight


@pytest.mark.parametrize(("form", "bits"), [(INT8, 8), (INT4, 4)])
def test_plain_matrices_are_quantized_in_groups_of_32(form: WeightFormat, bits: int) -> None:
    weight = converted(matrix(), form, torch.bfloat16)
    assert isinstance(weight, GroupedWeight)
    assert (weight.bits, weight.group, weight.dtype) == (bits, 32, torch.bfloat16)


@pytest.mark.parametrize(
    ("stored", "form", "bits"), [(4, INT8, 4), (4, INT4, 4), (8, INT8, 8), (8, INT4, 4)]
)
def test_stored_groups_are_only_ever_made_narrower(
    stored: int, form: WeightFormat, bits: int
) -> None:
    weight = groups(stored)
    narrow = converted(weight, form, FLOAT)
    assert isinstance(narrow, GroupedWeight)
    assert narrow.bits == bits
    assert (narrow is weight) is (bits == stored)


@pytest.mark.parametrize("form", [STORED, INT8])
def test_groups_of_16_become_groups_of_32(form: WeightFormat) -> None:
    weight = groups(6, 16)
    wide = converted(weight, form, FLOAT)
    assert isinstance(wide, GroupedWeight)
    assert (wide.group, wide.bits) == (32, 8)
    # At most a 510th of the range of values, which is at most 2.
    torch.testing.assert_close(plain(wide), plain(weight), rtol=0, atol=2 / 510)


def test_groups_that_fit_no_kernel_are_dequantized() -> None:
    weight = groups(4, 12)
    assert torch.equal(plain(converted(weight, STORED, FLOAT)), plain(weight))
    assert isinstance(converted(weight, STORED, FLOAT), torch.Tensor)


def test_inputs_that_do_not_fill_groups_stay_plain() -> None:
    weight = matrix(90)
    assert converted(weight, INT4, FLOAT) is weight


def test_fp8_has_a_scale_per_output() -> None:
    weight = converted(groups(8), FP8, FLOAT)
    assert isinstance(weight, Fp8Weight)
    assert weight.block == (1, 96)


def test_embedding_and_head_keep_more_bits() -> None:
    assert [of_ends(form) for form in (FULL, STORED, INT8, INT4, FP8)] == [
        FULL,
        STORED,
        INT8,
        INT8,
        FULL,
    ]


def test_a_reader_fuses_quantizes_and_keeps_small_tensors_exact(tmp_path: Path) -> None:
    card = saved_card(random_model(tiny_config()), tmp_path)
    checkpoint = open_checkpoint(card)
    split = ModelSplit(config=card.config)
    reader = WeightReader(checkpoint, INT4, split, dtype=torch.bfloat16, device=CPU)
    names = [f"model.layers.1.self_attn.{part}_proj.weight" for part in "qkv"]
    fused = reader.matrix(*names)
    assert isinstance(fused, GroupedWeight)
    assert (fused.bits, fused.dtype, fused.shape) == (4, torch.bfloat16, (320, 96))
    expected = torch.cat([checkpoint.read(name) for name in names])
    assert torch.equal(
        fused.values, quantize_groups(expected, bits=4, group=32, dtype=FLOAT).values
    )
    embedding = reader.end("model.embed_tokens.weight")
    assert isinstance(embedding, GroupedWeight)
    assert embedding.bits == 8
    assert reader.plain("model.norm.weight").dtype is torch.bfloat16


@pytest.mark.parametrize("form", [INT8, INT4])
def test_a_model_quantized_on_load_gives_the_logits_of_its_dequantized_weights(
    form: WeightFormat, tmp_path: Path
) -> None:
    model = random_model(tiny_config(tie_word_embeddings=False))
    card = saved_card(model, tmp_path / "exact")
    for name, tensor in model.state_dict().items():
        if tensor.dim() == 2:
            ends = "embed" in name or "lm_head" in name
            bits = 8 if ends or form is INT8 else 4
            tensor.copy_(quantize_groups(tensor, bits=bits, group=32, dtype=FLOAT).dequantize())
    rounded = saved_card(model, tmp_path / "rounded")
    tokens = torch.randint(0, 61, (24,), generator=torch.Generator().manual_seed(2)).tolist()
    logits = []
    for one, weights in ((card, form), (rounded, FULL)):
        decoder = Decoder(DecoderWeights(one, FLOAT, CPU, weights), TORCH_CPU)
        pool = KvPool(KvLayout.of(one.config, BLOCK_SIZE, FLOAT), 8, "cpu")
        logits.append(decoder.forward(ragged_batch([(tokens, 0, [3, 1, 6, 2, 5, 7])]), pool))
    # Float32 sums in another order.
    torch.testing.assert_close(logits[0], logits[1], rtol=1e-4, atol=3e-4)


def test_groups_of_fused_parts_are_those_of_the_parts(tmp_path: Path) -> None:
    card = saved_card(random_model(tiny_config()), tmp_path)
    layer = DecoderWeights(card, FLOAT, CPU, INT8).layer(0)
    assert isinstance(layer.feed_forward, MlpWeights)
    gate_up = layer.feed_forward.gate_up
    assert isinstance(gate_up, GroupedWeight)
    assert with_groups_of(gate_up, 32).scales.shape == (192, 3)
