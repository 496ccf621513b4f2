"""The quantization_config of a config.json: what it says, or why it is not run.

Refuses by name before any weight is read. Which modules are quantized is not taken from here
("ignore", "modules_to_not_convert"): the names of the stored tensors say it for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cluster.errors import UnsupportedModel
from cluster.models.card import QuantizationConfig, QuantMethod
from cluster.models.fields import Fields
from cluster.models.hf.compressed_tensors import compressed_tensors
from cluster.models.hf.quantization_fields import block_of, group_of, require

_SECTIONS = ("quantization_config", "compression_config")


def quantization_of_hf(values: dict[str, Any], where: str) -> QuantizationConfig | None:
    """None for plain weights.

    Raises UnsupportedModel for a method or an option that is not run, BadCheckpoint for bad values.
    """
    fields = Fields(values, where)
    for section in _SECTIONS:
        if fields.raw(section):
            return _of_section(fields.section(section))
    return None


def label_of(quantization: QuantizationConfig) -> str:
    """As a model card says a dtype: "gptq int4", "fp8 e4m3"."""
    kind = "e4m3" if quantization.is_float else f"int{quantization.bits}"
    return f"{quantization.method.value} {kind}"


def _of_section(fields: Fields) -> QuantizationConfig:
    method = fields.raw("quant_method")
    if not isinstance(method, str) or method not in METHODS:
        raise UnsupportedModel(
            f"{fields.where}: quant_method {method!r} is not run; supported: "
            f"{', '.join(METHODS)}, and GGUF files; or use the unquantized safetensors with "
            "--weights int8 or int4"
        )
    return METHODS[method](fields)


def _gptq(fields: Fields) -> QuantizationConfig:
    """AutoGPTQ's and GPTQModel's layout, versions 1 and 2."""
    bits, group = fields.integer("bits"), group_of(fields, "group_size")
    require(fields, "bits", bits, 4, 8)
    version = fields.text("checkpoint_format", "gptq")
    require(fields, "checkpoint_format", version, "gptq", "gptq_v2")
    require(fields, "pack_dtype", fields.text("pack_dtype", "int32"), "int32")
    require(fields, "is_marlin_format", fields.flag("is_marlin_format", False), False)
    overrides = fields.section("dynamic")
    changed = [rule for rule in overrides.sections() if not rule.startswith("-:")]
    if changed:
        raise UnsupportedModel(
            f"{overrides.where}: {changed[0]!r} quantizes some modules otherwise; "
            'only rules that leave modules out ("-:") are run'
        )
    return QuantizationConfig(
        method=QuantMethod.GPTQ,
        bits=bits,
        group=group,
        zeros_less_one=version == "gptq",
        is_reordered=fields.flag("desc_act", False) and group is not None,
    )


def _awq(fields: Fields) -> QuantizationConfig:
    """AutoAWQ's "gemm" layout, the one that is published."""
    bits = fields.integer("bits" if "bits" in fields else "w_bit")
    require(fields, "bits", bits, 4)
    require(fields, "version", fields.text("version", "gemm").lower(), "gemm")
    require(fields, "zero_point", fields.flag("zero_point", True), True)
    group = group_of(fields, "group_size" if "group_size" in fields else "q_group_size")
    return QuantizationConfig(method=QuantMethod.AWQ, bits=bits, group=group)


def _fp8(fields: Fields) -> QuantizationConfig:
    """DeepSeek-V3's blocks, and one scale per matrix or output."""
    require(fields, "fmt", fields.text("fmt", "e4m3"), "e4m3")
    scheme = fields.text("activation_scheme", "dynamic")
    require(fields, "activation_scheme", scheme, "dynamic", "static")
    block = block_of(fields, "weight_block_size")
    group = None if block is None else block[1]
    return QuantizationConfig(
        method=QuantMethod.FP8, bits=8, group=group, is_float=True, block=block
    )


METHODS: Final[dict[str, Callable[[Fields], QuantizationConfig]]] = {
    "gptq": _gptq,
    "awq": _awq,
    "compressed-tensors": compressed_tensors,
    "fp8": _fp8,
}
