"""A smaller model beside the one that is served: it guesses, and nothing that it says is told.

Its KV lies in a pool of its own with as many blocks as the target's, so that a block of a sequence
has room for both; memory is planned for both, and only the target's is ever given to a reader.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cluster.errors import ConfigError
from cluster.models.footprint import weight_bytes, workspace_bytes
from cluster.models.model_split import ModelSplit
from engine.contract.spec import DraftSpec, EngineSpec
from engine.memory.kv_pool import QUANTIZED_DTYPES, KvLayout, KvPool
from engine.memory.memory_request import BesideNeeds
from engine.model.decoder import Decoder
from engine.model.load_phases import PhaseProgress
from engine.model.weights.decoder_weights import DTYPES
from engine.runner.model_runner import DecoderRunner, DraftModel
from engine.runner.portion import Portion


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSize:
    """What a draft model takes, before it is loaded."""

    spec: DraftSpec
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
                weights=self.spec.weights.value,
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
            weights=self.spec.weights,
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

    def with_pool(self, num_blocks: int, target: Decoder) -> DraftModel:
        """Its own, of `num_blocks`: their ids are the target's."""
        pool = KvPool(self.size.layout, num_blocks, self.decoder.device)
        return DraftModel(
            name=self.size.spec.card.name,
            runner=DecoderRunner(self.decoder, pool),
            vocab_size=self.decoder.config.vocab_size,
            max_context_tokens=self.context_tokens,
            share=self.decoder.num_bytes / target.num_bytes,
        )


def _check_place(draft: DraftSpec, portion: Portion, device: torch.device) -> None:
    why = None
    if device.type != "cpu":
        why = "its device is a GPU, on which only ngram guesses so far"
    elif portion.num_homes > 1:
        why = "its ranks have sequences of their own (--data-parallel-attention)"
    if why is not None:
        raise ConfigError(
            f"speculation by the draft model {draft.card.name} cannot be had: {why}; choose "
            "--speculation ngram, auto or off",
            param="speculation",
        )
