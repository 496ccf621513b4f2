"""The quantization_config of a compressed-tensors checkpoint (llm-compressor).

    config_groups: {name: {weights: {num_bits, type, strategy, group_size...}, input_activations,
                    targets, format?}}, format, ignore, kv_cache_scheme, sparsity_config...

Activations that are quantized while the model runs (W8A8) need nothing of us: in full precision the
results are nearer to the unquantized model's.
"""

from __future__ import annotations

from cluster.errors import UnsupportedModel
from cluster.models.card import QuantizationConfig, QuantMethod
from cluster.models.fields import Fields
from cluster.models.hf.quantization_fields import block_of, group_of, require

_PACKED, _INTEGERS, _FLOATS = "pack-quantized", "int-quantized", "float-quantized"
_NAIVE = "naive-quantized"
_FORMATS = (_PACKED, _INTEGERS, _FLOATS, _NAIVE)
_STRATEGIES = ("tensor", "channel", "group", "block")


def compressed_tensors(fields: Fields) -> QuantizationConfig:
    """The group with the widest values; what a matrix's own are, its tensors' shapes say.

    Raises UnsupportedModel or BadCheckpoint.
    """
    _refuse_extras(fields)
    sections = fields.section("config_groups")
    groups = [_group(fields, sections.section(name)) for name in sections.sections()]
    if not groups:
        raise UnsupportedModel(f"{fields.where}: no config_groups, so nothing says what is stored")
    first = groups[0]
    for other in groups[1:]:
        if (other.is_float, other.block) != (first.is_float, first.block):
            raise UnsupportedModel(
                f"{fields.where}: config_groups mix integers and floats, or blocks; "
                "supported: one kind in a checkpoint"
            )
    return max(groups, key=lambda group: group.bits)


def _refuse_extras(fields: Fields) -> None:
    status = fields.text("quantization_status", "compressed")
    require(fields, "quantization_status", status, "compressed", "frozen")
    sparsity = fields.section("sparsity_config")
    require(sparsity, "format", sparsity.text("format", "dense"), "dense")
    if fields.raw("transform_config"):
        raise UnsupportedModel(
            f"{fields.where}: transform_config (rotated weights) is not run; "
            "use a checkpoint without transforms"
        )


def _group(fields: Fields, group: Fields) -> QuantizationConfig:
    stored = group.text("format", fields.text("format", _NAIVE))  # the latter: "mixed-precision"
    require(fields, "format", stored, *_FORMATS)
    if group.raw("output_activations"):
        raise UnsupportedModel(f"{group.where}: output_activations are not run")
    if "weights" not in group:
        raise UnsupportedModel(f"{group.where}: no weights; groups of activations are not run")
    weights = group.section("weights")
    kind = weights.text("type", "int")
    require(weights, "type", kind, "int", "float")
    bits = weights.integer("num_bits", 8)
    require(weights, "num_bits", bits, *((8,) if kind == "float" else (4, 8)))
    require(weights, "dynamic", weights.flag("dynamic", False), False)
    strategy = weights.text("strategy", "tensor")
    require(weights, "strategy", strategy, *_STRATEGIES)
    if (kind == "float") != (stored == _FLOATS) and stored != _NAIVE:
        raise UnsupportedModel(f"{group.where}: {kind} weights in format {stored!r} are not run")
    return _described(weights, strategy, bits=bits, is_float=kind == "float")


def _described(weights: Fields, strategy: str, *, bits: int, is_float: bool) -> QuantizationConfig:
    block = block_of(weights, "block_structure") if strategy == "block" else None
    if strategy == "block" and (block is None or not is_float):
        raise UnsupportedModel(f"{weights.where}: strategy 'block' is run for floats with a size")
    group = group_of(weights, "group_size") if strategy == "group" else None
    return QuantizationConfig(
        method=QuantMethod.COMPRESSED_TENSORS,
        bits=bits,
        group=group if block is None else block[1],
        is_float=is_float,
        block=block,
        is_reordered=group is not None and weights.raw("actorder") in ("group", True),
    )
