"""How many KV blocks fit, decided before a weight is read.

    free memory * share = weights + KV pool + workspace + headroom

The share is for engines that start side by side on one device: each sees the same free memory.
On a CPU the machine's memory is shared with other processes, so the default pool is modest; on a
GPU the device is the replica's own and the pool takes what is left.
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil
import torch

from cluster.errors import ConfigError, OutOfBlocks
from cluster.models.card import DecoderConfig
from engine.kv_pool import KvLayout
from kernels.paged_queries import QUANTIZED_KV

CPU_POOL_BYTES = 1 << 30
CPU_POOL_SHARE = 0.25  # of the memory available, if that is less
HEADROOM_SHARE = 0.05  # of the memory available: the process itself, fragmentation
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """What a replica wants."""

    config: DecoderConfig
    layout: KvLayout
    device: torch.device
    max_context_tokens: int
    max_batch_tokens: int
    kv_memory_bytes: int | None = None
    memory_share: float = 1.0
    dtype: torch.dtype | None = None
    """Of weights and activations; default: as the pool's."""

    @property
    def compute_dtype(self) -> torch.dtype:
        """What the model computes in."""
        return self.layout.dtype if self.dtype is None else self.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """What it gets; all in bytes but `num_blocks`."""

    num_blocks: int
    available_bytes: int
    weight_bytes: int
    workspace_bytes: int
    headroom_bytes: int
    kv_bytes: int


def plan_memory(request: MemoryRequest, available_bytes: int | None = None) -> MemoryBudget:
    """The pool's size. `available_bytes`, before the share, defaults to what the device has free.

    Raises ConfigError when the weights, or one sequence of the largest context beside them, do not
    fit in memory; OutOfBlocks when an explicit `kv_memory_bytes` does not hold one block.
    """
    free = available_bytes if available_bytes is not None else free_bytes(request.device)
    available = int(free * request.memory_share)
    weights = weight_bytes(request.config, request.compute_dtype)
    workspace = workspace_bytes(request)
    headroom = int(available * HEADROOM_SHARE)
    room = available - weights - workspace - headroom
    num_blocks = _pool_bytes(request, available, room) // request.layout.block_bytes
    _check_fit(request, num_blocks, room)
    return MemoryBudget(
        num_blocks=num_blocks,
        available_bytes=available,
        weight_bytes=weights,
        workspace_bytes=workspace,
        headroom_bytes=headroom,
        kv_bytes=num_blocks * request.layout.block_bytes,
    )


def free_bytes(device: torch.device) -> int:
    """Memory that can be had now."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def weight_bytes(config: DecoderConfig, dtype: torch.dtype) -> int:
    """All parameters in `dtype`; a tied head counts once."""
    hidden, inner = config.hidden_size, config.intermediate_size
    query, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    per_layer = hidden * (query + 2 * kv) + query * hidden + 3 * hidden * inner + 2 * hidden
    ends = config.vocab_size * hidden * (1 if config.tie_word_embeddings else 2) + hidden
    return (config.num_layers * per_layer + ends) * dtype.itemsize


def workspace_bytes(request: MemoryRequest) -> int:
    """Activations of one step of `max_batch_tokens`, all rows' logits not among them.

    Live at once at most: the residual (float32), a norm's output and the gate-up product with its
    SiLU; logits are wanted for at most one row per sequence, counted as 64 of them.
    """
    config = request.config
    query_kv = (config.num_heads * 2 + config.num_kv_heads * 2) * config.head_dim
    per_token = 4 * config.hidden_size + request.compute_dtype.itemsize * (
        2 * config.hidden_size + max(3 * config.intermediate_size, query_kv)
    )
    return request.max_batch_tokens * per_token + 64 * config.vocab_size * 4


def context_blocks(tokens: int, block_size: int) -> int:
    """Blocks that one sequence of `tokens` occupies."""
    return -(-tokens // block_size)


def _pool_bytes(request: MemoryRequest, available: int, room: int) -> int:
    if request.kv_memory_bytes is not None:
        return request.kv_memory_bytes
    if request.device.type != "cpu":
        return max(room, 0)
    modest = min(CPU_POOL_BYTES, int(available * CPU_POOL_SHARE), max(room, 0))
    one_sequence = (
        context_blocks(request.max_context_tokens, request.layout.block_size)
        * request.layout.block_bytes
    )
    return max(modest, min(one_sequence, max(room, 0)))


def _check_fit(request: MemoryRequest, num_blocks: int, room: int) -> None:
    block_bytes, block_size = request.layout.block_bytes, request.layout.block_size
    if request.kv_memory_bytes is not None and num_blocks < 1:
        raise OutOfBlocks(
            f"kv_memory_bytes is {request.kv_memory_bytes}; one block of {block_size} tokens "
            f"takes {block_bytes}; raise --kv-memory-bytes to at least that",
            param="kv_memory_bytes",
        )
    if num_blocks * block_bytes > max(room, 0):
        raise ConfigError(_too_large(request, num_blocks * block_bytes, room))
    fitting_tokens = num_blocks * block_size
    if fitting_tokens < request.max_context_tokens:
        raise ConfigError(_context_too_large(request, fitting_tokens), param="max_context_tokens")


def _too_large(request: MemoryRequest, kv_bytes: int, room: int) -> str:
    return (
        f"weights and a KV pool of {kv_bytes // _MIB} MiB do not fit: after the weights "
        f"({weight_bytes(request.config, request.compute_dtype) // _MIB} MiB), workspace and "
        f"headroom {max(room, 0) // _MIB} MiB are left{_of_share(request)}; "
        f"lower --kv-memory-bytes to that{_smaller_dtype(request)}"
    )


def _context_too_large(request: MemoryRequest, fitting_tokens: int) -> str:
    if fitting_tokens == 0:
        weights = weight_bytes(request.config, request.compute_dtype) // _MIB
        return (
            f"no KV block fits beside {weights} MiB of weights{_of_share(request)}; "
            f"use a smaller model or a larger machine{_smaller_dtype(request)}"
        )
    return (
        f"one sequence of {request.max_context_tokens} tokens does not fit in the KV pool; the "
        f"largest max_context_tokens that does is {fitting_tokens}"
        f"{_of_share(request)}{_smaller_dtype(request)}"
    )


def _of_share(request: MemoryRequest) -> str:
    if request.memory_share == 1.0:
        return ""
    return f" in this engine's {request.memory_share:.0%} of the free memory (--memory-share)"


def _smaller_dtype(request: MemoryRequest) -> str:
    if request.compute_dtype is torch.float32:
        return ", or use dtype bfloat16, which halves weights and KV"
    if request.layout.dtype not in QUANTIZED_KV:
        return ", or use --kv int8, which nearly halves the KV"
    return ""
