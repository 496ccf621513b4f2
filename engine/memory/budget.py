"""How many KV blocks fit, decided before a weight is read.

    free memory * share = weights + KV pool + workspace + headroom

The share is for engines side by side on one device. It is of all its memory, not of what is free:
what the one that came first has taken must not be divided again, least of all for one that starts
again while the others serve. Ranks of one engine that share memory plan with what was free before
the first of them took any, and each has an equal part.
On a CPU the machine's memory is shared with other processes, so the default pool is modest; on a
GPU the device is the replica's own and the pool takes what is left.
"""

from __future__ import annotations

import torch

from cluster.errors import ConfigError, OutOfBlocks
from cluster.models.adapters.targets import values_per_lora_rank
from cluster.models.footprint import (
    HEADROOM_SHARE,
    exchange_bytes,
    weight_bytes,
    workspace_bytes,
)
from cluster.process.free_memory import free_memory_bytes, whole_memory_bytes
from engine.memory.memory_request import MemoryBudget, MemoryRequest
from engine.memory.remedies import MIB, remedies

CPU_POOL_BYTES = 1 << 30
CPU_POOL_SHARE = 0.25  # of the memory available, if that is less


def plan_memory(request: MemoryRequest, available_bytes: int | None = None) -> MemoryBudget:
    """The pool's size. `available_bytes`, before the share, defaults to what the device has free.

    Raises ConfigError when the weights, or one sequence of the largest context beside them, do not
    fit in memory, naming what would; OutOfBlocks when an explicit `kv_memory_bytes` does not hold
    one block.
    """
    available = available_bytes
    if available is None:
        available = shared_bytes(request.device, request.memory_share, request.free_bytes)
    else:
        available = int(available * request.memory_share)
    available //= request.num_sharing
    weights = request.beside.weight_bytes + weight_bytes(
        request.split,
        dtype=request.dtype_name,
        weights=request.weights,
        stored_bytes=request.stored_bytes,
    )
    adapters = _adapter_bytes(request)
    weights += adapters
    exchange = _exchange_bytes(request)
    workspace = exchange + request.beside.workspace_bytes + _workspace_bytes(request)
    headroom = int(available * HEADROOM_SHARE)
    room = available - weights - workspace - headroom
    budget = MemoryBudget(
        num_blocks=_pool_bytes(request, available, room) // request.block_bytes,
        available_bytes=available,
        weight_bytes=weights,
        workspace_bytes=workspace,
        headroom_bytes=headroom,
        kv_bytes=_pool_bytes(request, available, room) // request.block_bytes * request.block_bytes,
        adapter_bytes=adapters,
        exchange_bytes=exchange,
    )
    _check_fit(request, budget, room)
    return budget


def shared_bytes(device: torch.device, share: float, free_bytes: int | None = None) -> int:
    """What an engine with this share of the device may plan with: no more than is free, or was, of
    a machine's memory, where `free_bytes` says so."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
    else:
        free, total = free_memory_bytes(), whole_memory_bytes()
        free = free if free_bytes is None else free_bytes
    return min(int(free), int(total * share))


def context_blocks(tokens: int, block_size: int) -> int:
    """Blocks that one sequence of `tokens` occupies."""
    return -(-tokens // block_size)


def _adapter_bytes(request: MemoryRequest) -> int:
    if not request.num_lora_ranks:
        return 0
    values = values_per_lora_rank(request.split) * request.num_lora_ranks
    return values * request.compute_dtype.itemsize


def _workspace_bytes(request: MemoryRequest) -> int:
    """Steps with adapters have workspaces of their own, one for each of the others."""
    num_kinds = request.num_workspaces * (2 if request.num_lora_ranks else 1)
    return num_kinds * workspace_bytes(
        request.split, dtype=request.dtype_name, max_batch_tokens=request.max_batch_tokens
    )


def _exchange_bytes(request: MemoryRequest) -> int:
    if not request.num_moves:
        return 0
    return exchange_bytes(
        request.split,
        dtype=request.dtype_name,
        weights=request.weights,
        stored_bytes=request.stored_bytes,
        num_moves=request.num_moves,
    )


def _pool_bytes(request: MemoryRequest, available: int, room: int) -> int:
    if request.kv_memory_bytes is not None:
        return request.kv_memory_bytes
    if request.device.type != "cpu":
        return max(room, 0)
    modest = min(CPU_POOL_BYTES, int(available * CPU_POOL_SHARE), max(room, 0))
    one_sequence = (
        context_blocks(request.max_context_tokens, request.layout.block_size) * request.block_bytes
    )
    return max(modest, min(one_sequence, max(room, 0)))


def _check_fit(request: MemoryRequest, budget: MemoryBudget, room: int) -> None:
    block_bytes, block_size = request.block_bytes, request.layout.block_size
    if request.kv_memory_bytes is not None and budget.num_blocks < 1:
        raise OutOfBlocks(
            f"kv_memory_bytes is {request.kv_memory_bytes}; one block of {block_size} tokens "
            f"takes {block_bytes}; raise --kv-memory-bytes to at least that",
            param="kv_memory_bytes",
        )
    if budget.kv_bytes > max(room, 0):
        raise ConfigError(_pool_too_large(request, budget, room))
    fitting_tokens = budget.num_blocks * block_size
    if fitting_tokens < request.max_context_tokens:
        raise ConfigError(
            _context_too_large(request, budget, fitting_tokens), param="max_context_tokens"
        )


def _pool_too_large(request: MemoryRequest, budget: MemoryBudget, room: int) -> str:
    return (
        f"weights and a KV pool of {budget.kv_bytes // MIB} MiB do not fit: after the weights "
        f"({budget.weight_bytes // MIB} MiB), workspace and headroom {max(room, 0) // MIB} MiB "
        f"are left{_of_share(request)}; lower --kv-memory-bytes to that"
    )


def _context_too_large(request: MemoryRequest, budget: MemoryBudget, fitting_tokens: int) -> str:
    ways = "".join(f", or {way}" for way in remedies(request, budget))
    if fitting_tokens == 0:
        return (
            f"no KV block fits beside {budget.weight_bytes // MIB} MiB of weights"
            f"{_of_share(request)}; use a smaller model or a larger machine{ways}"
        )
    return (
        f"one sequence of {request.max_context_tokens} tokens does not fit in the KV pool; the "
        f"largest max_context_tokens that does is {fitting_tokens}{_of_share(request)}{ways}"
    )


def _of_share(request: MemoryRequest) -> str:
    part = f", of which each of {request.num_sharing} ranks has its part"
    ranks = part if request.num_sharing > 1 else ""
    if request.memory_share == 1.0:
        return f" in this machine's memory{ranks}" if ranks else ""
    return f" in this engine's {request.memory_share:.0%} of the memory (--memory-share){ranks}"
