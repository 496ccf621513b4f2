"""What a replica wants of its device's memory, and what it gets."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cluster.models.model_split import ModelSplit
from engine.contract.weight_format import WeightFormat
from engine.memory.kv_pool import KvLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideNeeds:
    """Bytes of a model beside the one that is served, with KV in the same blocks."""

    weight_bytes: int = 0
    workspace_bytes: int = 0
    block_bytes: int = 0
    """Of its KV, in each block of the pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """What a replica wants."""

    split: ModelSplit
    """The part of the model that the memory is for, as the loader will read it."""
    layout: KvLayout
    """Of that part's KV heads."""
    device: torch.device
    max_context_tokens: int
    max_batch_tokens: int
    kv_memory_bytes: int | None = None
    memory_share: float = 1.0
    """The engine's, of the device."""
    num_sharing: int = 1
    """Ranks of the engine that plan with this memory, this one among them."""
    free_bytes: int | None = None
    """Of a machine's memory when the first of them planned; None: what is free now."""
    dtype: torch.dtype | None = None
    """Of activations and full weights; default: as the pool's."""
    weights: WeightFormat = WeightFormat.FULL
    stored_bytes: int | None = None
    """Size of the weight files: what weights in their stored format take."""
    num_lora_ranks: int = 0
    """Of all adapters that are in memory at once."""
    num_moves: int = 0
    """Experts of one layer that may change their ranks at once; 0: they stay where they are."""
    num_workspaces: int = 1
    """Forwards with activations of their own: a model that pools beside making text has two."""
    beside: BesideNeeds = BesideNeeds()
    """Of a draft model; zeros: there is none here."""

    @property
    def block_bytes(self) -> int:
        """Of one block of the pool, with what is beside it."""
        return self.layout.block_bytes + self.beside.block_bytes

    @property
    def compute_dtype(self) -> torch.dtype:
        """What the model computes in."""
        return self.layout.dtype if self.dtype is None else self.dtype

    @property
    def dtype_name(self) -> str:
        """`compute_dtype` as the options call it."""
        return str(self.compute_dtype).removeprefix("torch.")

    @property
    def kv(self) -> str:
        """The pool's format as the options call it."""
        return self.layout.kv


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """What it gets; all in bytes but `num_blocks`."""

    num_blocks: int
    available_bytes: int
    weight_bytes: int
    workspace_bytes: int
    """Of a step, and of an exchange of experts."""
    headroom_bytes: int
    kv_bytes: int
    adapter_bytes: int = 0
    """Of the weights, the room for adapters."""
    exchange_bytes: int = 0
    """Of the workspace, what only an exchange of experts takes."""
