"""What would make a model fit that does not: smaller formats, or more devices."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cluster.errors import ConfigError
from cluster.models.footprint import Footprint, footprint
from cluster.models.model_split import ModelSplit
from cluster.sharding import Rank
from engine.memory.memory_request import MemoryBudget, MemoryRequest

MIB = 1 << 20
MAX_DEVICES = 64
_SMALLER = {"float32": ("bfloat16",), "bfloat16": ()}
_SMALLER_WEIGHTS = {"full": ("int8", "int4"), "fp8": ("int4",), "int8": ("int4",)}


@dataclass(frozen=True, slots=True)
class _Change:
    """Formats to try, and the flags that ask for them."""

    flags: str
    dtype: str
    weights: str
    kv: str


def remedies(request: MemoryRequest, budget: MemoryBudget) -> list[str]:
    """In words: the mildest change of formats that helps, and how many devices would do.

    A change helps when one sequence of the largest context fits, or, where nothing reaches that,
    when any context does; the context is then named.
    """
    available = budget.available_bytes - budget.headroom_bytes
    wanted = request.max_context_tokens
    reached = [
        (c, _footprint(request, c).largest_context(available, wanted)) for c in _try(request)
    ]
    whole = [f"use {change.flags}" for change, tokens in reached if tokens == wanted]
    part = [f"use {c.flags} for {tokens} tokens" for c, tokens in reached if 0 < tokens < wanted]
    return (whole or part[-1:])[:1] + _split(request, available)


def _try(request: MemoryRequest) -> list[_Change]:
    """From mild to strong."""
    dtype, weights, kv = request.dtype_name, request.weights.value, request.kv
    found = [_Change(f"--dtype {d}", d, weights, kv) for d in _SMALLER.get(dtype, ())]
    base = found[-1] if found else _Change("", dtype, weights, kv)
    if kv == "auto":
        found.append(_Change(f"{base.flags} --kv int8".strip(), base.dtype, weights, "int8"))
    for smaller in _SMALLER_WEIGHTS.get(weights, ()):
        flags = f"{base.flags} --weights {smaller}".strip()
        found.append(_Change(flags, base.dtype, smaller, kv))
        if kv == "auto":
            found.append(_Change(f"{flags} --kv int8", base.dtype, smaller, "int8"))
    return found


def _split(request: MemoryRequest, available: int) -> list[str]:
    """The fewest devices of this size that hold it, the same heads at each; none has more to hold
    than the last one."""
    if request.device.type != "cuda":
        return []
    plain = _Change("", request.dtype_name, request.weights.value, request.kv)
    wanted = request.max_context_tokens
    split = request.split
    more = range(split.rank.world_size + 1, MAX_DEVICES + 1)
    for count in (n for n in more if split.config.num_heads % n == 0):
        try:
            last = replace(split, rank=Rank(count - 1, count))
            part = _footprint(request, plain, last)
        except ConfigError:  # it cannot be shared by so many
            continue
        if part.largest_context(available, wanted) == wanted:
            return [f"split it over {count} such devices"]
    return []


def _footprint(
    request: MemoryRequest, change: _Change, split: ModelSplit | None = None
) -> Footprint:
    alone = footprint(
        request.split if split is None else split,
        dtype=change.dtype,
        weights=change.weights,
        kv=change.kv,
        stored_bytes=request.stored_bytes,
        max_batch_tokens=request.max_batch_tokens,
    )
    beside, layout = request.beside, request.layout
    all_layers, own_layers = layout.shape.num_layers, request.split.kv_shape.num_layers
    of_a_head = alone.kv_bytes_per_token * (all_layers - own_layers) // own_layers
    if split is not None:  # whole, however many hold the model
        of_a_head = layout.block_bytes * (all_layers - own_layers)
        of_a_head //= all_layers * layout.block_size
    return replace(
        alone,
        weight_bytes=alone.weight_bytes + beside.weight_bytes,
        workspace_bytes=alone.workspace_bytes + beside.workspace_bytes,
        kv_bytes_per_token=(
            alone.kv_bytes_per_token + of_a_head + beside.block_bytes // layout.block_size
        ),
    )
