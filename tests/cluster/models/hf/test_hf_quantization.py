"""quantization_config: what is run is described, everything else is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cluster.errors import BadCheckpoint, ModelError, UnsupportedModel
from cluster.models.cache.store import ModelStore
from cluster.models.card import QuantizationConfig, QuantMethod
from cluster.models.hf.quantization import label_of, quantization_of_hf

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "GEMM"}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
WEIGHTS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}


def compressed(weights: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": WEIGHTS | (weights or {})}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    } | changes


def described(section: dict[str, Any]) -> QuantizationConfig | None:
    return quantization_of_hf({"quantization_config": section}, "config.json")


@pytest.mark.parametrize(
    ("section", "expected", "label"),
    [
        (
            GPTQ,
            {"method": QuantMethod.GPTQ, "bits": 4, "group": 128, "zeros_less_one": True},
            "gptq int4",
        ),
        (
            GPTQ | {"checkpoint_format": "gptq_v2", "bits": 8, "group_size": -1},
            {"method": QuantMethod.GPTQ, "bits": 8, "group": None},
            "gptq int8",
        ),
        (
            GPTQ | {"desc_act": True, "dynamic": {"-:.*gate": {}}},
            {
                "method": QuantMethod.GPTQ,
                "bits": 4,
                "group": 128,
                "zeros_less_one": True,
                "is_reordered": True,
            },
            "gptq int4",
        ),
        (AWQ, {"method": QuantMethod.AWQ, "bits": 4, "group": 128}, "awq int4"),
        (
            {"quant_method": "awq", "w_bit": 4, "q_group_size": 64},
            {"method": QuantMethod.AWQ, "bits": 4, "group": 64},
            "awq int4",
        ),
        (
            FP8,
            {
                "method": QuantMethod.FP8,
                "bits": 8,
                "group": 128,
                "is_float": True,
                "block": (128, 128),
            },
            "fp8 e4m3",
        ),
        (
            {"quant_method": "fp8", "activation_scheme": "static"},
            {"method": QuantMethod.FP8, "bits": 8, "group": None, "is_float": True},
            "fp8 e4m3",
        ),
        (
            compressed(),
            {"method": QuantMethod.COMPRESSED_TENSORS, "bits": 4, "group": 128},
            "compressed-tensors int4",
        ),
        (
            compressed({"actorder": "group"}),
            {
                "method": QuantMethod.COMPRESSED_TENSORS,
                "bits": 4,
                "group": 128,
                "is_reordered": True,
            },
            "compressed-tensors int4",
        ),
        (
            compressed({"num_bits": 8, "strategy": "channel"}, format="int-quantized"),
            {"method": QuantMethod.COMPRESSED_TENSORS, "bits": 8, "group": None},
            "compressed-tensors int8",
        ),
        (
            compressed(
                {
                    "num_bits": 8,
                    "type": "float",
                    "strategy": "block",
                    "block_structure": [128, 128],
                },
                format="float-quantized",
            ),
            {
                "method": QuantMethod.COMPRESSED_TENSORS,
                "bits": 8,
                "group": 128,
                "is_float": True,
                "block": (128, 128),
            },
            "compressed-tensors e4m3",
        ),
        (
            compressed(
                format="mixed-precision",
                config_groups={
                    "a": {"format": "pack-quantized", "weights": WEIGHTS},
                    "b": {"format": "int-quantized", "weights": WEIGHTS | {"num_bits": 8}},
                },
            ),
            {"method": QuantMethod.COMPRESSED_TENSORS, "bits": 8, "group": 128},
            "compressed-tensors int8",
        ),
    ],
)
def test_what_is_run_is_described(
    section: dict[str, Any], expected: dict[str, Any], label: str
) -> None:
    found = described(section)
    assert found == QuantizationConfig(**expected)
    assert label_of(found) == label


def test_no_section_is_no_quantization() -> None:
    assert quantization_of_hf({"quantization_config": None}, "config.json") is None
    assert quantization_of_hf({}, "config.json") is None


def test_the_older_name_of_the_section_is_read() -> None:
    assert quantization_of_hf({"compression_config": compressed()}, "config.json") is not None


@pytest.mark.parametrize(
    "method",
    ["bitsandbytes", "gguf", "hqq", "aqlm", "mxfp4", "quark", "modelopt", "auto-round", 7, None],
)
def test_a_foreign_method_is_refused_by_name_with_what_is_run(method: object) -> None:
    with pytest.raises(UnsupportedModel, match=f"{method!r} is not run.*gptq, awq, compressed"):
        described({"quant_method": method, "bits": 4})


@pytest.mark.parametrize(
    ("section", "says"),
    [
        (GPTQ | {"bits": 3}, "bits 3 is not run; supported: 4, 8"),
        (GPTQ | {"checkpoint_format": "marlin"}, "checkpoint_format 'marlin'"),
        (GPTQ | {"is_marlin_format": True}, "is_marlin_format True"),
        (GPTQ | {"pack_dtype": "int64"}, "pack_dtype 'int64'"),
        (GPTQ | {"dynamic": {"+:.*down": {"bits": 8}}}, r"'\+:\.\*down' quantizes"),
        (AWQ | {"bits": 8}, "bits 8"),
        (AWQ | {"version": "gemv"}, "version 'gemv'"),
        (AWQ | {"zero_point": False}, "zero_point False"),
        (FP8 | {"fmt": "e5m2"}, "fmt 'e5m2'"),
        (FP8 | {"activation_scheme": "none"}, "activation_scheme 'none'"),
        (compressed(format="nvfp4-pack-quantized"), "'nvfp4-pack-quantized'"),
        (compressed(format="marlin-24"), "'marlin-24'"),
        (compressed({"num_bits": 3}), "num_bits 3 is not run"),
        (compressed({"type": "float", "num_bits": 4}), "num_bits 4 is not run"),
        (compressed({"type": "float", "num_bits": 8}), "float weights in format 'pack-quantized'"),
        (compressed({"dynamic": True}), "dynamic True"),
        (compressed({"strategy": "attn_head"}), "strategy 'attn_head'"),
        (compressed({"strategy": "block", "block_structure": [128, 128]}), "strategy 'block'"),
        (compressed(config_groups={}), "no config_groups"),
        (compressed(config_groups={"a": {"input_activations": {}}}), "no weights"),
        (compressed(sparsity_config={"format": "sparse-24-bitmask"}), "'sparse-24-bitmask'"),
        (compressed(transform_config={"config_groups": {"R1": {}}}), "transform_config"),
        (compressed(quantization_status="calibration"), "'calibration'"),
        (
            compressed(config_groups={"a": {"weights": WEIGHTS, "output_activations": {"x": 1}}}),
            "output_activations",
        ),
        (
            compressed(
                config_groups={
                    "a": {"format": "pack-quantized", "weights": WEIGHTS},
                    "b": {
                        "format": "float-quantized",
                        "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
                    },
                }
            ),
            "mix integers and floats",
        ),
    ],
)
def test_an_option_that_is_not_run_is_refused_by_name(section: dict[str, Any], says: str) -> None:
    with pytest.raises(UnsupportedModel, match=says):
        described(section)


@pytest.mark.parametrize(
    ("section", "says"),
    [
        (GPTQ | {"group_size": 0}, "group_size is 0; allowed: -1, 1 to"),
        (GPTQ | {"group_size": "128"}, "'group_size' is str"),
        ({"quant_method": "gptq"}, "lacks 'bits'"),
        (FP8 | {"weight_block_size": [128]}, "two positive sizes"),
        (FP8 | {"weight_block_size": [128, 0]}, "two positive sizes"),
        (compressed({"group_size": None}), "lacks 'group_size'"),
    ],
)
def test_a_value_that_cannot_be_is_a_bad_checkpoint(section: dict[str, Any], says: str) -> None:
    with pytest.raises(BadCheckpoint, match=says):
        described(section)


def test_a_foreign_quantization_is_refused_before_the_weights_are_opened(tiny_folder: Any) -> None:
    tiny_folder.config["quantization_config"] = {"quant_method": "bitsandbytes"}
    tiny_folder.shards = {}
    path = tiny_folder.write()
    with pytest.raises(UnsupportedModel, match="'bitsandbytes' is not run"):
        ModelStore(path.parent / "home").show(str(path))


@pytest.mark.parametrize("section", [GPTQ, None])
def test_integers_are_weights_only_of_a_quantized_model(tiny_folder: Any, section: Any) -> None:
    tiny_folder.config["quantization_config"] = section
    tiny_folder.shards["model.safetensors"]["x.qweight"] = np.zeros((4, 8), dtype=np.int32)
    path = tiny_folder.write()
    if section is None:
        with pytest.raises(ModelError, match="dtype 'I32'; supported: F32"):
            ModelStore(path.parent / "home").show(str(path))
    else:
        card = ModelStore(path.parent / "home").show(str(path))
        assert card.checkpoint_dtype == "gptq int4"
