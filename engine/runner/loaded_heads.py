"""A head with its weights, and its part of the target's blocks, or a pool of its own."""

from __future__ import annotations

from collections.abc import Sequence
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
from engine.model.load_phases import PhaseProgress
from engine.model.ragged_batch import RaggedBatch
from engine.model.weights.open_checkpoint import open_checkpoint
from engine.runner.device import waiter_of
from engine.runner.measured_pool import Forwards
from engine.runner.model_runner import DraftHeads, LeavesStates
from engine.runner.portion import Portion
from engine.runner.warm_up import WarmUpLimits, longest_prompts, warm_up
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
    states_width: int
    """Of what it reads of each row of the target's steps."""

    def longest(self, limits: WarmUpLimits, target: Decoder) -> Forwards:
        """Its longest step, where the target's are tried on a device."""
        batches = longest_prompts(limits.beside(limits.max_context_tokens))
        device = target.device
        states = torch.zeros(max(map(_num_tokens, batches)), self.states_width, device=device)

        def forward(batch: RaggedBatch, pool: KvPool) -> object:
            hidden = self.head.fused(states[: _num_tokens(batch)])
            return self.head.forward(batch, hidden, pool)

        return Forwards(forward, self.layout, [batch.to(device) for batch in batches])

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
            states_width=self.states_width,
            device=target.device,
            wait=waiter_of(target.device),
        )


class HeadRunner:
    """A HeadsRunner."""

    def __init__(self, head: Head, target: Decoder, kv: KvLayers) -> None:
        self._head, self._target, self._kv = head, target, kv
        self._device = target.device
        self._is_on_host = self._device.type == "cpu"
        self._steps: LeavesStates = target

    def follow(self, steps: LeavesStates) -> None:
        """See HeadsRunner."""
        self._steps = steps

    def states(self) -> torch.Tensor:
        """See HeadsRunner."""
        return self._steps.states()

    def fused(self, states: torch.Tensor) -> torch.Tensor:
        """See HeadsRunner."""
        return self._head.fused(states)

    def forward(self, batch: RaggedBatch, hidden: torch.Tensor) -> HeadOutput | None:
        """See HeadsRunner."""
        there = batch if self._is_on_host else batch.to(self._device)
        return self._head.forward(there, hidden, self._kv)


def _num_tokens(batch: RaggedBatch) -> int:
    return len(batch.token_ids)


class _FirstSteps:
    """A ModelRunner of a head's steps over no states, for the warm-up."""

    def __init__(self, heads: DraftHeads) -> None:
        self._runner, self._width = heads.runner, heads.states_width
        self._device = heads.device

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """See ModelRunner: those are the target's."""

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        """See ModelRunner."""
        states = torch.zeros(_num_tokens(batch), self._width, device=self._device)
        output = self._runner.forward(batch, self._runner.fused(states))
        assert output is not None, "its logits were wanted"
        return output.logits


def warm_up_head(heads: DraftHeads, limits: WarmUpLimits, progress: PhaseProgress) -> None:
    """As warm_up, where kernels are compiled; elsewhere its first step touches the memory."""
    if limits.compiles:
        warm_up(_FirstSteps(heads), limits.beside(limits.max_context_tokens), progress)


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
    if device.type != "cpu" and not portion.rank.is_alone:
        why = "its model is shared by several GPUs, on which only ngram guesses so far"
    elif portion.row_sharing is not RowSharing.ALL:
        why = "its ranks split the rows of a step, and none has the states of all"
    if why is not None:
        raise ConfigError(
            f"speculation by {what} cannot be had: {why}; choose --speculation ngram, auto or off",
            param="speculation",
        )
