"""Inputs of a matrix that stay together where ranks share its columns.

What is quantized is multiplied in groups of 32 inputs. A run of columns that ends inside of one
would be dequantized, or rounded anew over other neighbours than a single rank's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from cluster.errors import ConfigError
from cluster.models.card import DecoderConfig, ModelCard
from cluster.models.model_split import ModelSplit
from cluster.models.stored_tensor import Share
from cluster.models.tensors import expected_tensors
from cluster.sharding import HeadSplit, RowSharing

QUANTIZED_GROUP = 32
"""Inputs per scale of what is quantized on load: the groups of GGUF, and of the native kernels."""
_MOST_RANKS = 64
"""As many as a message looks for sizes that fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummedMatrix:
    """One whose columns ranks share."""

    name: str
    inputs: int
    share: Share
    group: int | None
    """Inputs that share a scale where it is stored; None: none do."""


def column_unit(group: int | None, inputs: int, weights: str) -> int:
    """Of a matrix whose `group` inputs share a scale where it is stored. `weights` is resolved, as
    for a footprint."""
    is_plain = weights == "stored" and group is None
    if weights == "full" or is_plain:
        return 1
    fits = group is None or group % QUANTIZED_GROUP == 0 or QUANTIZED_GROUP % group == 0
    if fits and inputs % QUANTIZED_GROUP == 0:
        return QUANTIZED_GROUP
    return group or 1


def stored_matrices(
    config: DecoderConfig, group_of: Callable[[str], int | None]
) -> Iterator[SummedMatrix]:
    """All that a checkpoint has; `group_of` the name of each."""
    for name, tensor in expected_tensors(config).items():
        if tensor.is_summed and tensor.is_matrix:
            yield SummedMatrix(
                name=name, inputs=tensor.shape[1], share=tensor.share, group=group_of(name)
            )


@functools.lru_cache(maxsize=4)
def declared_matrices(card: ModelCard) -> tuple[SummedMatrix, ...]:
    """Before a checkpoint is opened: each kind once, as the card says that most matrices are."""
    quantization, found = card.quantization, {}
    for matrix in stored_matrices(card.config, lambda name: None):
        group = None if quantization is None else quantization.group or matrix.inputs
        found[matrix.share, matrix.inputs] = replace(matrix, group=group)
    return tuple(found.values())


def fitting_split(split: ModelSplit, weights: str, matrices: Iterable[SummedMatrix]) -> ModelSplit:
    """With the column unit that all feed-forwards ask for.

    Raises ConfigError where the heads of two ranks meet inside of what shares a scale.
    """
    if split.rank.is_alone:
        return split
    units = {1}
    for matrix in matrices:
        unit = column_unit(matrix.group, matrix.inputs, weights)
        if matrix.share is not Share.HEADS:
            units.add(unit)
        elif split.row_sharing is RowSharing.OWN:
            continue  # nobody shares heads
        elif not _heads_meet(split.config, matrix.inputs, unit, split.rank.world_size):
            raise _no_fit(matrix, split, unit)
    return replace(split, column_unit=math.lcm(*units))


def _heads_meet(config: DecoderConfig, inputs: int, unit: int, world_size: int) -> bool:
    """Whether all of a group's ranks begin where a unit does."""
    if world_size > config.num_heads:
        return False
    heads = HeadSplit(
        num_heads=config.num_heads, num_kv_heads=config.num_kv_heads, world_size=world_size
    )
    size = inputs // config.num_heads
    return all(heads.heads(index).start * size % unit == 0 for index in range(world_size))


def _no_fit(matrix: SummedMatrix, split: ModelSplit, unit: int) -> ConfigError:
    num_heads, inputs = split.config.num_heads, matrix.inputs
    sizes = range(1, min(_MOST_RANKS, num_heads) + 1)
    fitting = [str(size) for size in sizes if _heads_meet(split.config, inputs, unit, size)]
    return ConfigError(
        f"{split.rank.world_size} ranks would cut {matrix.name} inside of {unit} columns that "
        f"share a scale (heads of {inputs // num_heads}); use one of {', '.join(fitting)} ranks, "
        "or full weights",
        param="tensor_parallel_size",
    )
