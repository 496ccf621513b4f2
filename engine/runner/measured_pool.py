"""How many KV blocks a GPU holds, once the weights are there and the longest step was tried.

A plan counts what a model should take; a device says what it does: copies that packing left behind,
the library's workspaces, what torch holds in reserve. The plan comes first all the same, so that a
model that cannot fit is refused before it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from cluster.errors import ConfigError
from engine.memory.kv_pool import KvLayout, KvPool
from engine.memory.memory_request import MemoryBudget
from engine.model.ragged_batch import RaggedBatch

Forward = Callable[[RaggedBatch, KvPool], object]
"""As `Decoder.forward`; the batch is on the device."""


@dataclass(frozen=True, slots=True)
class Forwards:
    """What is tried of one model."""

    forward: Forward
    layout: KvLayout
    longest: Sequence[RaggedBatch]
    """The longest step of every kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """Of this process, on its device."""

    held_bytes: int
    """Weights, and what torch keeps beside them."""
    step_bytes: int
    """More than that, at the peak of the longest steps."""
    library_bytes: int = 0
    """Taken past torch while the model was loaded and the step tried: NCCL's, above all."""


def measure_memory(models: Sequence[Forwards], *, settle: Callable[[], None]) -> MeasuredMemory:
    """Tries the longest step of every kind, of each model over a pool of one block, which all its
    tokens share: workspaces stay, each of its kind. CUDA only.

    Ranks of a group try it together: `settle` ends a wait for one that is lost.
    """
    device = models[0].longest[0].token_ids.device
    pools = [KvPool(model.layout, 1, device) for model in models]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    held = torch.cuda.memory_reserved(device)
    for model, pool in zip(models, pools, strict=True):
        for batch in model.longest:
            model.forward(batch, pool)
    settle()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_reserved(device)
    del pools, pool
    torch.cuda.empty_cache()
    return MeasuredMemory(held_bytes=held, step_bytes=peak - held)


def bytes_beside_torch(device: torch.device) -> int:
    """Of the device's memory, what torch does not hold: other processes', contexts, libraries. CUDA
    only; asked twice, it says what NCCL has taken meanwhile, on a GPU that nobody shares."""
    free, total = torch.cuda.mem_get_info(device)
    return total - free - torch.cuda.memory_reserved(device)


def blocks_that_fit(
    budget: MemoryBudget,
    measured: MeasuredMemory,
    layout: KvLayout,
    *,
    max_context_tokens: int,
    beside_bytes: int = 0,
) -> int:
    """Never more than planned. `beside_bytes`: of each block, what is in a pool beside this one's.
    Raises ConfigError where not even one sequence of the largest context is left room for, with
    what would fit."""
    room = budget.available_bytes - budget.headroom_bytes - budget.exchange_bytes
    room -= measured.held_bytes + measured.library_bytes + measured.step_bytes
    num_blocks = max(0, min(budget.num_blocks, room // (layout.block_bytes + beside_bytes)))
    fitting_tokens = num_blocks * layout.block_size
    if fitting_tokens < max_context_tokens:
        held_mib, step_mib = measured.held_bytes >> 20, measured.step_bytes >> 20
        library = f", {measured.library_bytes >> 20} MiB of NCCL" if measured.library_bytes else ""
        raise ConfigError(
            f"beside {held_mib} MiB of loaded weights{library} and {step_mib} MiB for a step there "
            f"is room for {fitting_tokens} tokens; "
            f"max_context_tokens is {max_context_tokens}: lower it to that, or --max-batch-tokens",
            param="max_context_tokens",
        )
    return num_blocks
