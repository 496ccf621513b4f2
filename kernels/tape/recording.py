"""A recorded forward, and the interface of what plays it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from kernels.paged_queries import PagedQueries
from kernels.tape.operations import Operation
from kernels.tape.rows import Rows


class NoNativeForm(Exception):
    """An operation that a native player does not have; says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Operations in their order. A player may hold it for as long as the model is loaded."""

    operations: tuple[Operation, ...]
    num_places: int
    logits: Rows
    """What a step leaves: float32, one row per wanted row."""
    left: tuple[Rows, ...] = ()
    """What it leaves beside them, one row per token: see `LeaveRows`."""


class StepQueries(PagedQueries, Protocol):
    """The tensors of a step; `engine.model.ragged_batch.RaggedBatch` is one. All are contiguous."""

    @property
    def token_ids(self) -> torch.Tensor: ...  # int64 [num_tokens]

    @property
    def positions(self) -> torch.Tensor: ...  # int64 [num_tokens]

    @property
    def slots(self) -> torch.Tensor: ...  # int64 [num_tokens]

    @property
    def logit_rows(self) -> torch.Tensor: ...  # int64 [num_logits]

    @property
    def adapters(
        self,
    ) -> torch.Tensor | None: ...  # int32 [num_tokens]; None: no row has one


class Player(Protocol):
    """Runs a recording, one step at a time. Not thread-safe."""

    @property
    def num_native_calls(self) -> int:
        """Calls of a native library that a step consists of; 0: one kernel after the other."""

    @property
    def why_by_kernels(self) -> str:
        """Why a step goes kernel by kernel, in words; empty where it is native."""

    @property
    def has_alike_rows(self) -> bool:
        """Whether a row has the same bits in whatever batch it is computed, over a pool that is not
        quantized."""

    def __call__(self, batch: StepQueries, kv: torch.Tensor) -> torch.Tensor:
        """Writes the batch's KV into the pool; returns logits, float32 [num_logits, vocab_size].

        kv  [num_blocks, num_layers, planes, num_kv_heads, block_size, row_width]

        Block tables, slots and positions are trusted; a wrong one corrupts other sequences.
        """

    def left(self) -> tuple[torch.Tensor, ...]:
        """What the last step has left, each [num_tokens, width]: views, valid until the next."""
