"""Quantized safetensors: what is read is what the packed integers and floats stand for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from cluster.errors import BadCheckpoint
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard, QuantizationConfig, QuantMethod
from cluster.models.tensor_part import WHOLE, TensorPart
from engine.contract.weight_format import resolve_weights
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from engine.model.weights.decoder_weights import DecoderWeights
from engine.model.weights.mixtral_names import MixtralNames
from engine.model.weights.quantized_checkpoint import QuantizedCheckpoint
from kernels.dispatch.kernel_sets import TORCH_CPU
from kernels.weights import Fp8Weight, GroupedWeight, Weight, plain
from tests.engine.model.tiny_llama import (
    BLOCK_SIZE,
    ragged_batch,
    random_model,
    saved_card,
    tiny_config,
)
from tests.engine.model.weights import quantized_files as files
from tests.engine.model.weights.quantized_files import Stored

# A scale times an integer, with the zero point taken before or after: one rounding of float32.
ROUNDED = {"rtol": 1e-6, "atol": 1e-7}

GPTQ = QuantizationConfig(method=QuantMethod.GPTQ, bits=4, group=32, zeros_less_one=True)
GPTQ_8 = QuantizationConfig(method=QuantMethod.GPTQ, bits=8, group=32, zeros_less_one=True)
GPTQ_V2 = QuantizationConfig(method=QuantMethod.GPTQ, bits=4, group=32)
AWQ = QuantizationConfig(method=QuantMethod.AWQ, bits=4, group=32)
COMPRESSED = QuantizationConfig(method=QuantMethod.COMPRESSED_TENSORS, bits=4, group=32)
FP8 = QuantizationConfig(method=QuantMethod.FP8, bits=8, group=None, is_float=True)
FP8_BLOCKS = QuantizationConfig(
    method=QuantMethod.FP8, bits=8, group=128, is_float=True, block=(128, 128)
)


class Tensors:
    """A `Checkpoint` in memory."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = dict(tensors)
        self.num_bytes_read = 0

    def names(self) -> frozenset[str]:
        return frozenset(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name].shape)

    def inputs_per_scale(self, name: str) -> int | None:
        return None

    def read(self, name: str, part: TensorPart = WHOLE) -> torch.Tensor:
        runs = part.within(self.shape(name))
        tensor = self._tensors[name][tuple(slice(run.start, run.stop) for run in runs)]
        self.num_bytes_read += tensor.nbytes
        return tensor.clone()

    def read_weight(self, name: str, part: TensorPart = WHOLE) -> Weight:
        return self.read(name, part)


def checkpoint_of(parts: Mapping[str, torch.Tensor], quantization: Any) -> QuantizedCheckpoint:
    tensors = {f"model.up_proj.{part}": tensor for part, tensor in parts.items()}
    tensors["model.norm.weight"] = torch.ones(4)
    return QuantizedCheckpoint(Tensors(tensors), quantization, ())


def matrix(outputs: int = 64, inputs: int = 256) -> torch.Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(outputs + inputs))


def extreme() -> torch.Tensor:
    """Groups that are all above or all below zero: zero points of 0 and of 15 or 255."""
    values = matrix().abs()
    values[::2] *= -1
    return values


GROUPED: dict[str, tuple[Stored, QuantizationConfig, int]] = {
    "gptq, groups of 32": (files.gptq(matrix()), GPTQ, 32),
    "gptq, groups of 64": (files.gptq(matrix(), group=64), GPTQ, 64),
    "gptq, groups of 128": (files.gptq(matrix(), group=128), GPTQ, 128),
    "gptq, one group": (files.gptq(matrix(), group=None), GPTQ, 256),
    "gptq, 8 bits": (files.gptq(matrix(), bits=8), GPTQ_8, 32),
    "gptq, symmetric": (files.gptq(matrix(), symmetric=True), GPTQ, 32),
    "gptq, extreme zero points": (files.gptq(extreme()), GPTQ, 32),
    "gptq, version 2": (files.gptq(extreme(), version=2), GPTQ_V2, 32),
    "awq": (files.awq(matrix()), AWQ, 32),
    "awq, groups of 128": (files.awq(extreme(), group=128), AWQ, 128),
    "packed, symmetric": (files.packed(matrix()), COMPRESSED, 32),
    "packed, asymmetric": (files.packed(extreme(), symmetric=False), COMPRESSED, 32),
    "packed, 8 bits": (files.packed(extreme(), bits=8, symmetric=False), COMPRESSED, 32),
    "packed, per channel": (files.packed(matrix(), group=None), COMPRESSED, 256),
    "packed, odd widths": (files.packed(matrix(62, 36), group=12, symmetric=False), COMPRESSED, 12),
    "bytes": (files.int8_bytes(matrix()), COMPRESSED, 256),
    "bytes, asymmetric": (files.int8_bytes(extreme(), symmetric=False), COMPRESSED, 256),
}


@pytest.mark.parametrize("case", GROUPED)
def test_packed_integers_become_groups_that_stand_for_the_same_matrix(case: str) -> None:
    (parts, floats), quantization, group = GROUPED[case]
    checkpoint = checkpoint_of(parts, quantization)
    assert checkpoint.names() == {"model.up_proj.weight", "model.norm.weight"}
    assert checkpoint.shape("model.up_proj.weight") == floats.shape
    weight = checkpoint.read_weight("model.up_proj.weight")
    assert isinstance(weight, GroupedWeight)
    assert weight.group == group
    assert int(weight.values.max()) < 2**weight.bits
    torch.testing.assert_close(weight.dequantize(), floats, **ROUNDED)
    assert torch.equal(checkpoint.read("model.up_proj.weight"), weight.dequantize())


def test_gptq_without_an_index_of_groups_has_runs() -> None:
    parts, floats = files.gptq(matrix())
    del parts["g_idx"]
    weight = checkpoint_of(parts, GPTQ).read_weight("model.up_proj.weight")
    assert isinstance(weight, GroupedWeight)
    torch.testing.assert_close(weight.dequantize(), floats, **ROUNDED)


def test_an_unused_index_of_compressed_tensors_counts_for_nothing() -> None:
    parts, floats = files.packed(matrix())
    parts["weight_g_idx"] = torch.full((256,), -1, dtype=torch.int32)
    weight = checkpoint_of(parts, COMPRESSED).read_weight("model.up_proj.weight")
    torch.testing.assert_close(plain(weight), floats, **ROUNDED)


@pytest.mark.parametrize(
    ("stored", "quantization"),
    [
        (files.gptq(matrix(), group_of=files.scattered(256, 32)), GPTQ),
        (files.gptq(matrix(), bits=8, group_of=files.scattered(256, 64)), GPTQ_8),
        (files.packed(matrix(), group_of=files.scattered(256, 32)), COMPRESSED),
    ],
)
def test_scattered_groups_are_dequantized(stored: Stored, quantization: Any) -> None:
    parts, floats = stored
    weight = checkpoint_of(parts, quantization).read_weight("model.up_proj.weight")
    assert isinstance(weight, torch.Tensor)
    torch.testing.assert_close(weight, floats, **ROUNDED)


FLOATS: dict[str, tuple[Stored, QuantizationConfig, tuple[int, int]]] = {
    "one scale": (files.fp8(matrix(), scale_shape=()), FP8, (64, 256)),
    "one scale in a list": (files.fp8(matrix(), scale_shape=(1,)), FP8, (64, 256)),
    "a scale per output": (files.fp8(matrix(), block=(1, 256)), FP8, (1, 256)),
    "a vector of scales": (files.fp8(matrix(), block=(1, 256), scale_shape=(64,)), FP8, (1, 256)),
    "blocks": (
        files.fp8(matrix(200, 300), block=(128, 128), scale_part="weight_scale_inv"),
        FP8_BLOCKS,
        (128, 128),
    ),
}


@pytest.mark.parametrize("case", FLOATS)
def test_8_bit_floats_stay_what_they_are(case: str) -> None:
    (parts, floats), quantization, block = FLOATS[case]
    checkpoint = checkpoint_of(parts, quantization)
    assert checkpoint.shape("model.up_proj.weight") == floats.shape
    weight = checkpoint.read_weight("model.up_proj.weight")
    assert isinstance(weight, Fp8Weight)
    assert (weight.block, weight.input_scale) == (block, None)
    assert torch.equal(weight.dequantize(), floats)


def test_a_static_scale_of_activations_is_kept() -> None:
    parts, _ = files.fp8(matrix(), scale_shape=(), input_scale=0.5)
    weight = checkpoint_of(parts, FP8).read_weight("model.up_proj.weight")
    assert isinstance(weight, Fp8Weight)
    assert weight.input_scale == 0.5


def test_mixtrals_quantized_experts_have_the_common_names() -> None:
    parts, floats = files.gptq(matrix())
    expert = "model.layers.0.block_sparse_moe.experts.3.w2"
    stored = Tensors({f"{expert}.{part}": tensor for part, tensor in parts.items()})
    checkpoint = QuantizedCheckpoint(MixtralNames(stored), GPTQ, ())
    name = "model.layers.0.mlp.experts.3.down_proj.weight"
    assert checkpoint.names() == {name}
    torch.testing.assert_close(checkpoint.read(name), floats, **ROUNDED)


def test_scales_for_a_foreign_kv_cache_are_not_tensors_of_the_model() -> None:
    parts, _ = files.fp8(matrix(), scale_shape=())
    checkpoint = checkpoint_of({**parts, "k_scale": torch.ones(1)}, FP8)
    assert checkpoint.names() == {"model.up_proj.weight", "model.norm.weight"}


@pytest.mark.parametrize(("bias", "is_there"), [(torch.zeros(64), False), (torch.ones(64), True)])
def test_a_bias_of_zeros_that_the_model_has_no_place_for_is_left_out(
    bias: torch.Tensor, is_there: bool
) -> None:
    parts, _ = files.gptq(matrix())
    checkpoint = checkpoint_of({**parts, "bias": bias}, GPTQ)
    assert ("model.up_proj.bias" in checkpoint.names()) is is_there


def _changed(stored: Stored, part: str, tensor: torch.Tensor | None) -> dict[str, torch.Tensor]:
    parts = {**stored[0], part: tensor}
    return {name: value for name, value in parts.items() if value is not None}


@pytest.mark.parametrize(
    ("parts", "quantization", "says"),
    [
        (_changed(files.gptq(matrix()), "scales", None), GPTQ, "lacks scales"),
        (_changed(files.gptq(matrix()), "scales", torch.ones(8, 3)), GPTQ, r"scales has shape"),
        (_changed(files.gptq(matrix()), "scales", torch.ones(7, 64)), GPTQ, "qzeros has shape"),
        (
            _changed(files.gptq(matrix()), "g_idx", torch.full((256,), 8, dtype=torch.int32)),
            GPTQ,
            "outside 0 to 7",
        ),
        (_changed(files.gptq(matrix()), "qzeros", torch.ones(8, 8)), GPTQ, "torch.float32; needed"),
        (_changed(files.awq(matrix()), "scales", torch.ones(7, 64)), AWQ, "256 inputs in 7 groups"),
        (
            _changed(files.packed(matrix()), "weight_shape", torch.tensor([64, 250])),
            COMPRESSED,
            "250 inputs in 8 groups",
        ),
        (
            _changed(files.packed(matrix()), "weight_shape", torch.tensor([64, 999])),
            COMPRESSED,
            "neither of 4 bits nor of 8",
        ),
        (
            _changed(files.packed(matrix()), "weight_shape", torch.tensor([60, 256])),
            COMPRESSED,
            "60 outputs",
        ),
        (
            _changed(files.int8_bytes(matrix()), "weight", torch.ones(64, 256)),
            COMPRESSED,
            "torch.float32; needed: int8",
        ),
        (
            _changed(files.int8_bytes(matrix()), "weight_scale", torch.ones(3, 1)),
            COMPRESSED,
            r"weight_scale has shape \(3, 1\)",
        ),
        (_changed(files.fp8(matrix()), "weight_scale", torch.ones(3, 3)), FP8, "has shape"),
        (_changed(files.fp8(matrix()), "weight", torch.ones(64, 256)), FP8, "needed: float8"),
    ],
)
def test_parts_that_do_not_fit_together_are_a_bad_checkpoint(
    parts: dict[str, torch.Tensor], quantization: Any, says: str
) -> None:
    with pytest.raises(BadCheckpoint, match=says):
        checkpoint_of(parts, quantization).read_weight("model.up_proj.weight")


FOLDERS: dict[str, tuple[dict[str, Any], Any]] = {
    "gptq": (
        {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True},
        lambda w: files.gptq(w, symmetric=True),
    ),
    "gptq in activation order": (
        {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": False},
        lambda w: files.gptq(w, group_of=files.scattered(w.shape[1], 32)),
    ),
    "awq": (
        {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"},
        files.awq,
    ),
    "compressed tensors, 4 bits": (
        {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "ignore": ["lm_head"],
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {
                        "num_bits": 4,
                        "type": "int",
                        "strategy": "group",
                        "group_size": 32,
                        "symmetric": False,
                    },
                }
            },
        },
        lambda w: files.packed(w, symmetric=False),
    ),
    "compressed tensors, 8 bits": (
        {
            "quant_method": "compressed-tensors",
            "format": "int-quantized",
            "config_groups": {
                "group_0": {
                    "weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
                    "input_activations": {"num_bits": 8, "dynamic": True, "strategy": "token"},
                }
            },
        },
        files.int8_bytes,
    ),
    "compressed tensors, floats": (
        {
            "quant_method": "compressed-tensors",
            "format": "float-quantized",
            "config_groups": {
                "group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}
            },
        },
        lambda w: files.fp8(w, scale_shape=(1,), input_scale=0.1),
    ),
    "fp8 in blocks": (
        {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [64, 32]},
        lambda w: files.fp8(w, block=(64, 32), scale_part="weight_scale_inv"),
    ),
}


def _logits(card: ModelCard, weights: str) -> torch.Tensor:
    """In float32 by kernels that dequantize: what is tested is what was read."""
    form = resolve_weights(card, weights, "float32", "cpu")
    read = DecoderWeights(card, torch.float32, torch.device("cpu"), form)
    decoder = Decoder(read, TORCH_CPU)
    pool = KvPool(KvLayout.of(card.config, BLOCK_SIZE, torch.float32), 8, "cpu")
    tokens = torch.randint(0, 61, (24,), generator=torch.Generator().manual_seed(2)).tolist()
    return decoder.forward(ragged_batch([(tokens, 0, [3, 1, 6, 2, 5, 7])]), pool)


@pytest.mark.parametrize("case", FOLDERS)
@pytest.mark.parametrize("weights", ["auto", "stored"])
def test_a_quantized_model_gives_the_logits_of_the_same_model_dequantized(
    case: str, weights: str, tmp_path: Path
) -> None:
    quantization, store = FOLDERS[case]
    model = random_model(tiny_config(tie_word_embeddings=False))
    files.write_folder(model, tmp_path / "quantized", quantization, store)
    plain_card = saved_card(model, tmp_path / "plain")
    card = ModelStore(tmp_path / "home").show(str(tmp_path / "quantized"))
    assert card.quantization is not None
    # Float32 sums in another order, of weights that are rounded once more or less.
    torch.testing.assert_close(
        _logits(card, weights),
        _logits(plain_card, "full"),
        rtol=1e-4,
        atol=3e-4,
    )


def test_a_bad_bias_in_a_quantized_folder_is_named(tmp_path: Path) -> None:
    quantization, store = FOLDERS["gptq"]
    files.write_folder(random_model(tiny_config()), tmp_path / "m", quantization, store)
    path = tmp_path / "m" / "model.safetensors"
    name = "model.layers.0.mlp.up_proj.bias"
    save_file({**load_file(path), name: torch.ones(96)}, path)
    card = ModelStore(tmp_path / "home").show(str(tmp_path / "m"))
    with pytest.raises(BadCheckpoint, match=name):
        Decoder.load(card, torch.float32, "cpu")
