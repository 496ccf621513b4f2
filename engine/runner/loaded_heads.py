"""A head with its weights, and its part of the target's blocks, or a pool of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from cluster.errors import ConfigError
from cluster.models.card import ModelCard
from cluster.models.tensors import EMBEDDING, LM_HEAD
from cluster.sharding import RowSharing
from engine.contract.head_in_blocks import HeadInBlocks
from engine.memory.head_blocks import HeadBlocks
from engine.memory.kv_pool import KvLayers, KvLayout, KvPool
from engine.model.decoder import Decoder
from engine.model.head_output import HeadOutput
from engine.model.ragged_batch import RaggedBatch
from engine.model.weights.open_checkpoint import open_checkpoint
from engine.runner.model_runner import DraftHeads
from engine.runner.portion import Portion
from kernels.linear import Linear


class Head(Protocol):
    """See engine/model/eagle3_head.py."""

    @property
    def num_bytes(self) -> int: ...

    def fused(self, states: torch.Tensor) -> torch.Tensor: ...

    def forward(
        self, batch: RaggedBatch, hidden: torch.Tensor, kv: KvLayers
    ) -> HeadOutput | None: ...


@dataclass(frozen=True, slots=True)
class LoadedHeads:
    """Its weights are here; how large the target's pool is may not be known yet."""

    name: str
    layout: KvLayout
    head: Head
    room: HeadInBlocks | None
    """In the target's blocks."""

    def with_pool(self, pool: KvPool, target: Decoder) -> DraftHeads:
        """`pool`: the target's, with that room. Without it a pool of its own has as many blocks."""
        blocks = None if self.room is None else HeadBlocks(pool, self.room)
        kv: KvLayers = (
            KvPool(self.layout, pool.num_blocks, target.device) if blocks is None else blocks.kv
        )
        return DraftHeads(
            name=self.name,
            runner=HeadRunner(self.head, target, kv),
            share=self.head.num_bytes / target.num_bytes,
            blocks=blocks,
        )


class HeadRunner:
    """A HeadsRunner."""

    def __init__(self, head: Head, target: Decoder, kv: KvLayers) -> None:
        self._head, self._target, self._kv = head, target, kv

    def states(self) -> torch.Tensor:
        """See HeadsRunner."""
        return self._target.states()

    def fused(self, states: torch.Tensor) -> torch.Tensor:
        """See HeadsRunner."""
        return self._head.fused(states)

    def forward(self, batch: RaggedBatch, hidden: torch.Tensor) -> HeadOutput | None:
        """See HeadsRunner."""
        return self._head.forward(batch, hidden, self._kv)


def whole_embedding(target: ModelCard, decoder: Decoder) -> Linear:
    """The target's own matrix; of a rank that has a part of it, all of it anew."""
    if decoder.split.dense_rank.is_alone:
        return decoder.embedding
    return _whole(target, decoder, EMBEDDING)


def whole_lm_head(target: ModelCard, decoder: Decoder) -> Linear:
    """As the embedding."""
    if decoder.split.dense_rank.is_alone:
        return decoder.lm_head
    return _whole(target, decoder, EMBEDDING if target.config.tie_word_embeddings else LM_HEAD)


def _whole(target: ModelCard, decoder: Decoder, name: str) -> Linear:
    return decoder.kernels.pack_linear(open_checkpoint(target).read(name).to(decoder.dtype))


def check_place(what: str, portion: Portion, device: torch.device) -> None:
    """Raises ConfigError where no head can be beside the model."""
    why = None
    if device.type != "cpu":
        why = "its device is a GPU, on which only ngram guesses so far"
    elif portion.row_sharing is not RowSharing.ALL:
        why = "its ranks split the rows of a step, and none has the states of all"
    if why is not None:
        raise ConfigError(
            f"speculation by {what} cannot be had: {why}; choose --speculation ngram, auto or off",
            param="speculation",
        )
