"""What a replica, or a rank's part of it, needs and may hold: resolved before anything is loaded.

options, card, device -> ReplicaSize -> what the memory's plan asks for; the limits of the warm-up
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from cluster.errors import ConfigError
from cluster.identity import Role
from cluster.models.model_split import ModelSplit
from cluster.speculation import LookUp
from engine.contract.head_in_blocks import head_in_blocks
from engine.contract.spec import EngineSpec
from engine.contract.weight_format import WeightFormat
from engine.memory.kv_pool import QUANTIZED_DTYPES, KvLayout
from engine.memory.memory_request import BesideNeeds, MemoryRequest
from engine.model.experts.rebalancer import MAX_MOVES
from engine.model.weights.decoder_weights import DTYPES
from engine.runner.context_limit import resolve_context
from engine.runner.draft_fit import why_no_room
from engine.runner.draft_heads import HeadsSize
from engine.runner.draft_model import DraftSize
from engine.runner.draft_shapes import MOST_ROWS, DraftShapes
from engine.runner.own_layers import OwnLayerSize
from engine.runner.portion import Portion
from engine.runner.replayed_steps import why_not_replayed
from engine.runner.warm_up import WarmUpLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSize:
    """What the options make of a model, or a rank's part of it, on this machine's device."""

    portion: Portion
    split: ModelSplit
    device: torch.device
    dtype: torch.dtype
    layout: KvLayout
    context_tokens: int
    max_num_seqs: int
    max_batch_tokens: int
    why_not_replayed: str | None
    """See replayed_steps.py."""
    looks_up: bool = False
    """Guesses were asked for by name, and answers are given here."""
    why_no_drafts: str | None = None
    """Of recorded steps, what was asked for and has no room on this GPU; None: there is, or nothing
    was asked for."""
    num_workspaces: int = 1
    """Forwards that are recorded, each with activations of its own; those of adapters are as many
    more."""
    has_adapters: bool = False
    beside: BesideNeeds
    """Of a draft model, or a head."""

    @classmethod
    def of(
        cls,
        spec: EngineSpec,
        portion: Portion,
        split: ModelSplit,
        device: torch.device,
        drafter: DraftSize | HeadsSize | OwnLayerSize | None = None,
    ) -> ReplicaSize:
        """Raises ConfigError for a context that cannot be had, and for prompts that cannot be
        pooled."""
        options, dtype, pooling = spec.options, DTYPES[spec.dtype], spec.pooling
        if pooling is not None and portion.num_homes > 1:
            raise ConfigError(
                "--pooling and --data-parallel-attention do not go together: no rank has the "
                "hidden states of all sequences",
                param="pooling",
            )
        makes_text = pooling is None or pooling.generates
        kv_dtype = QUANTIZED_DTYPES.get(spec.kv, dtype)
        layout = KvLayout.of_part(split, options.block_size_tokens, kv_dtype)
        head = head_in_blocks(spec)
        if head is not None and portion.rank.index == 0:
            layout = layout.deeper(head.layers_at(layout.shape.num_kv_heads))
        why_not = why_not_replayed(options, split)
        looks_up = (
            options.speculation_wish.look_up is LookUp.ALWAYS and spec.role is not Role.PREFILL
        )
        why_no_drafts = None
        if looks_up and makes_text and why_not is None:
            why_no_drafts = why_no_room(split, dtype, layout.dtype, device)
        beside = drafter.needs if drafter is not None and why_no_drafts is None else BesideNeeds()
        block_bytes = layout.block_bytes + beside.block_bytes
        return cls(
            portion=portion,
            split=split,
            device=device,
            dtype=dtype,
            layout=layout,
            context_tokens=resolve_context(spec.card.config, options, block_bytes),
            max_num_seqs=options.max_num_seqs,
            max_batch_tokens=options.max_batch_tokens,
            why_not_replayed=why_not if makes_text else "this model decodes nothing",
            looks_up=looks_up,
            why_no_drafts=why_no_drafts,
            num_workspaces=1 + (pooling is not None and makes_text),
            has_adapters=options.adapters is not None,
            beside=beside,
        )

    @property
    def is_replayed(self) -> bool:
        """Decode steps are captured graphs."""
        return self.device.type == "cuda" and self.why_not_replayed is None

    @property
    def draft_shapes(self) -> DraftShapes | None:
        """Of steps with drafts that are captured; None: none are, or steps are not replayed."""
        if not (self.is_replayed and self.looks_up) or self.why_no_drafts is not None:
            return None
        return DraftShapes(
            max_num_seqs=self.max_num_seqs,
            max_batch_tokens=self.max_batch_tokens,
            max_context_tokens=self.context_tokens,
        )

    @property
    def pads_rows(self) -> bool:
        """Steps have rows of padding, which take one block more: replayed ones, and those of ranks
        without a sequence in them."""
        return self.is_replayed or self.portion.num_homes > 1

    @property
    def has_gpu_in_group(self) -> bool:
        """A rank's GPU is its own, and NCCL takes a part of it."""
        return self.device.type == "cuda" and not self.portion.rank.is_alone

    def memory_request(self, spec: EngineSpec, weights: WeightFormat) -> MemoryRequest:
        """For the plan."""
        return MemoryRequest(
            split=self.split,
            layout=self.layout,
            dtype=self.dtype,
            device=self.device,
            max_context_tokens=self.context_tokens,
            max_batch_tokens=self.max_batch_tokens,
            kv_memory_bytes=spec.options.kv_memory_bytes,
            memory_share=spec.options.memory_share,
            free_bytes=self.portion.free_bytes,
            num_sharing=self.portion.num_sharing(self.device),
            weights=weights,
            stored_bytes=spec.card.stored_bytes,
            num_lora_ranks=0 if spec.options.adapters is None else spec.options.adapter_ranks,
            num_moves=0 if spec.options.expert_rebalance_interval_s is None else MAX_MOVES,
            num_workspaces=self.num_workspaces,
            beside=self.beside,
        )

    def warm_up_limits(self, scratch_blocks: Sequence[int]) -> WarmUpLimits:
        """See there; of what a step may hold each home has a part."""
        num_homes = self.portion.num_homes
        return WarmUpLimits(
            max_num_seqs=self.max_num_seqs // num_homes,
            max_batch_tokens=self.max_batch_tokens // num_homes,
            max_context_tokens=self.context_tokens,
            block_size=self.layout.block_size,
            scratch_blocks=tuple(scratch_blocks),
            compiles=self.device.type == "cuda",
            max_drawn_rows=0 if self.draft_shapes is None else MOST_ROWS,
            has_adapters=self.has_adapters,
            is_pooled=self.num_workspaces > 1,
        )
