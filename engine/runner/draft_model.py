"""A smaller model beside the one that is served: it guesses, and nothing that it says is told.

Its KV lies in a pool of its own with as many blocks as the target's, so that a block of a sequence
has room for both; memory is planned for both, and only the target's is ever given to a reader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from cluster.errors import ConfigError
from cluster.models.footprint import weight_bytes, workspace_bytes
from cluster.models.model_split import ModelSplit
from engine.contract.spec import DraftSpec, EngineSpec
from engine.contract.weight_format import WeightFormat
from engine.memory.kv_pool import QUANTIZED_DTYPES, KvLayout, KvPool
from engine.memory.memory_request import BesideNeeds
from engine.model.decoder import Decoder
from engine.model.load_phases import PhaseProgress
from engine.model.weights.decoder_weights import DTYPES
from engine.runner.device import waiter_of
from engine.runner.gpu_formats import draft_weights_on
from engine.runner.measured_pool import Forwards
from engine.runner.model_runner import DraftModel, ModelRunner
from engine.runner.portion import Portion
from engine.runner.warm_up import WarmUpLimits, longest_prompts

MakeRunner = Callable[[Decoder, KvPool], ModelRunner]
"""Of steps over the pool, whose last block is for padding where rows are padded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSize:
    """What a draft model takes, before it is loaded."""

    spec: DraftSpec
    weights: WeightFormat
    """As its device holds them."""
    layout: KvLayout
    max_batch_tokens: int

    @classmethod
    def of(cls, spec: EngineSpec, portion: Portion, device: torch.device) -> DraftSize | None:
        """None: there is no draft model, or another rank has it. Raises ConfigError where it could
        not be used."""
        draft = spec.draft
        if draft is None:
            return None
        _check_place(draft, portion, device)
        if portion.rank.index:
            return None
        kv_dtype = QUANTIZED_DTYPES.get(spec.kv, DTYPES[draft.dtype])
        return cls(
            spec=draft,
            weights=draft_weights_on(device, spec, draft),
            layout=KvLayout.of(draft.card.config, spec.options.block_size_tokens, kv_dtype),
            max_batch_tokens=spec.options.max_batch_tokens,
        )

    @property
    def needs(self) -> BesideNeeds:
        """Of the memory that the target's plan is about."""
        split, card = ModelSplit(config=self.spec.card.config), self.spec.card
        return BesideNeeds(
            weight_bytes=weight_bytes(
                split,
                dtype=self.spec.dtype,
                weights=self.weights.value,
                stored_bytes=card.stored_bytes,
            ),
            workspace_bytes=workspace_bytes(
                split, dtype=self.spec.dtype, max_batch_tokens=self.max_batch_tokens
            ),
            block_bytes=self.layout.block_bytes,
        )

    def load(
        self, device: torch.device, progress: PhaseProgress, *, context_tokens: int
    ) -> LoadedDraft:
        """`context_tokens`: of the target. Raises as Decoder.load."""
        context_tokens = min(self.spec.card.config.max_context_tokens, context_tokens)
        decoder = Decoder.load(
            self.spec.card,
            DTYPES[self.spec.dtype],
            device,
            lambda phase, fraction: progress("load draft model", fraction),
            weights=self.weights,
            max_context_tokens=max(context_tokens, self.layout.block_size),  # for the warm-up
        )
        return LoadedDraft(self, decoder, context_tokens)


@dataclass(frozen=True, slots=True)
class LoadedDraft:
    """Its weights are here; how large the target's pool is may not be known yet."""

    size: DraftSize
    decoder: Decoder
    context_tokens: int
    """Of no sequence it reads more."""

    def longest(self, limits: WarmUpLimits, target: Decoder) -> Forwards:
        """Its longest step, where the target's are tried on a device."""
        batches = longest_prompts(limits.beside(self.context_tokens))
        there = [batch.to(self.decoder.device) for batch in batches]
        return Forwards(self.decoder.forward, self.size.layout, there)

    def with_pool(
        self, num_blocks: int, target: Decoder, *, pads_rows: bool, runner_over: MakeRunner
    ) -> DraftModel:
        """Its own, of `num_blocks`: their ids are the target's; where rows are padded one more."""
        device = self.decoder.device
        pool = KvPool(self.size.layout, num_blocks + pads_rows, device)
        return DraftModel(
            name=self.size.spec.card.name,
            runner=runner_over(self.decoder, pool),
            vocab_size=self.decoder.config.vocab_size,
            max_context_tokens=self.context_tokens,
            share=self.decoder.num_bytes / target.num_bytes,
            wait=waiter_of(device),
        )


def _check_place(draft: DraftSpec, portion: Portion, device: torch.device) -> None:
    why = None
    if device.type != "cpu" and not portion.rank.is_alone:
        why = "its model is shared by several GPUs, on which only ngram guesses so far"
    elif portion.num_homes > 1:
        why = "its ranks have sequences of their own (--data-parallel-attention)"
    if why is not None:
        raise ConfigError(
            f"speculation by the draft model {draft.card.name} cannot be had: {why}; choose "
            "--speculation ngram, auto or off",
            param="speculation",
        )
