"""Inputs of a matrix that stay together where ranks share its columns.

What is quantized is multiplied in groups of 32 inputs. A run of columns that ends inside of one
would be dequantized, or rounded anew over other neighbours than a single rank's.
"""

from __future__ import annotations

import math
from dataclasses import replace

from cluster.errors import ConfigError
from cluster.models.model_split import ModelSplit, value_dim
from cluster.models.tensors import expected_shapes
from cluster.sharding import HeadSplit
from engine.contract.weight_format import WeightFormat
from engine.model.weights.checkpoint import Checkpoint
from engine.model.weights.requantize import GROUP

_MOST_RANKS = 64
"""As many as a message looks for sizes that fit."""
_DOWN, _OUTPUT = ".down_proj.weight", ".self_attn.o_proj.weight"


def column_unit(group: int | None, inputs: int, form: WeightFormat) -> int:
    """Of a matrix whose `group` inputs share a scale where it is stored."""
    is_plain = form is WeightFormat.STORED and group is None
    if form is WeightFormat.FULL or is_plain:
        return 1
    fits = group is None or group % GROUP == 0 or GROUP % group == 0
    if fits and inputs % GROUP == 0:
        return GROUP
    return group or 1


def fitting_split(checkpoint: Checkpoint, split: ModelSplit, form: WeightFormat) -> ModelSplit:
    """With the column unit that all feed-forwards ask for.

    Raises ConfigError where the heads of two ranks meet inside of what shares a scale.
    """
    if split.rank.is_alone:
        return split
    units = {1}
    for name, shape in expected_shapes(split.config).items():
        if name.endswith((_DOWN, _OUTPUT)):
            unit = column_unit(checkpoint.group(name), shape[1], form)
            if name.endswith(_DOWN):
                units.add(unit)
            elif not _heads_meet(split, split.rank.world_size, unit):
                raise _no_fit(name, split, unit)
    return replace(split, column_unit=math.lcm(*units))


def _heads_meet(split: ModelSplit, world_size: int, unit: int) -> bool:
    """Whether all of a group's ranks begin where a unit does."""
    config = split.config
    if world_size > config.num_heads:
        return False
    heads = HeadSplit(
        num_heads=config.num_heads, num_kv_heads=config.num_kv_heads, world_size=world_size
    )
    dim = value_dim(config)
    return all(heads.heads(index).start * dim % unit == 0 for index in range(world_size))


def _no_fit(name: str, split: ModelSplit, unit: int) -> ConfigError:
    sizes = range(1, min(_MOST_RANKS, split.config.num_heads) + 1)
    fitting = ", ".join(str(size) for size in sizes if _heads_meet(split, size, unit))
    return ConfigError(
        f"{split.rank.world_size} ranks would cut {name} inside of {unit} columns that share a "
        f"scale (heads of {value_dim(split.config)}); use one of {fitting} ranks, or full weights",
        param="tensor_parallel_size",
    )
