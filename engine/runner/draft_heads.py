"""A head over the served model's states: it guesses, and nothing that it says is told.

Its KV lies in the target's blocks, where there is room for it (engine/contract/head_in_blocks.py):
a block that is cached or handed over has it. Else it lies in a pool of its own with as many blocks,
as a draft model's does. Of a group of ranks the first has the head, whole: there are the states of
all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from cluster.errors import BadCheckpoint, ConfigError
from cluster.models.card import DecoderConfig, ModelCard
from cluster.models.heads.card import HeadsCard
from cluster.models.heads.tensors import EMBEDDING as HEAD_EMBEDDING
from cluster.models.heads.tensors import needed_shapes
from engine.contract.head_in_blocks import HeadInBlocks, head_in_blocks
from engine.contract.spec import EngineSpec
from engine.memory.kv_pool import QUANTIZED_DTYPES, KvLayout
from engine.memory.memory_request import BesideNeeds
from engine.model.decoder import Decoder
from engine.model.eagle3_head import Eagle3Head
from engine.model.weights.decoder_weights import DTYPES
from engine.model.weights.heads_weights import has_embedding, read_heads
from engine.runner.loaded_heads import LoadedHeads, check_place, whole_embedding
from engine.runner.own_layers import OwnLayerSize
from engine.runner.portion import Portion
from kernels.linear import Linear

_STATE_BYTES = torch.float32.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadsSize:
    """What a head takes, before it is loaded."""

    card: HeadsCard
    dtype: str
    target: ModelCard
    layout: KvLayout
    shares_embedding: bool
    """It reads the matrix that its target has in this process."""
    max_batch_tokens: int
    room: HeadInBlocks | None
    """In the target's blocks."""

    @classmethod
    def of(
        cls, spec: EngineSpec, card: HeadsCard, portion: Portion, device: torch.device
    ) -> HeadsSize | None:
        """None: another rank has it. Raises ConfigError where it could not be used."""
        _check(card, spec.card.config, portion, device)
        if portion.rank.index:
            return None
        kv_dtype = QUANTIZED_DTYPES.get(spec.kv, DTYPES[spec.dtype])
        block_size = spec.options.block_size_tokens
        return cls(
            card=card,
            dtype=spec.dtype,
            target=spec.card,
            layout=KvLayout.of(card.config.layer, block_size, kv_dtype),
            shares_embedding=portion.rank.is_alone and not has_embedding(card),
            max_batch_tokens=spec.options.max_batch_tokens,
            room=head_in_blocks(spec),
        )

    @property
    def layers_read(self) -> tuple[int, ...]:
        """Of the target, whose input it reads."""
        return self.card.config.layers_of(self.target.config.num_layers)

    @property
    def needs(self) -> BesideNeeds:
        """Of the memory that the target's plan is about: what it reads of a step lies there twice,
        as the step leaves it and side by side, and a step's rows in its layer."""
        layer, item = self.card.config.layer, DTYPES[self.dtype].itemsize
        shapes = needed_shapes(self.card.config, self._width).values()
        weights = sum(shape[0] * shape[1] for shape in shapes if len(shape) == 2)
        embedding = 0 if self.shares_embedding else layer.vocab_size * layer.hidden_size
        widest = max(4 * layer.hidden_size, 3 * layer.intermediate_size)
        row = 2 * self._width * _STATE_BYTES + (2 * layer.hidden_size + widest) * _STATE_BYTES
        return BesideNeeds(
            weight_bytes=(weights + embedding) * item,
            workspace_bytes=self.max_batch_tokens * row,
            block_bytes=0 if self.room is not None else self.layout.block_bytes,
        )

    def load(self, decoder: Decoder, *, context_tokens: int) -> LoadedHeads:
        """Beside its target, which has been loaded to leave `layers_read`. Raises BadCheckpoint."""
        card = self.card
        weights = read_heads(card, DTYPES[self.dtype], target_width=self._width)
        weights = weights.to(decoder.device)
        layer = replace(card.config.layer, max_context_tokens=context_tokens)
        embedding = None if weights.embedding is not None else self._embedding_of(decoder)
        head = Eagle3Head(replace(card.config, layer=layer), weights, decoder.kernels, embedding)
        return LoadedHeads(card.name, self.layout, head, self.room, self._width)

    def _embedding_of(self, decoder: Decoder) -> Linear:
        """The target's: its own matrix, or, of a rank that has a part of it, all of it anew. Raises
        BadCheckpoint for a head of another width."""
        hidden = self.card.config.layer.hidden_size
        if hidden != self.target.config.hidden_size:
            raise BadCheckpoint(
                f"the head's checkpoint lacks {HEAD_EMBEDDING}, and its hidden size of {hidden} is "
                f"not the target's, {self.target.config.hidden_size}"
            )
        return whole_embedding(self.target, decoder)

    @property
    def _width(self) -> int:
        """Of the states, side by side."""
        return len(self.layers_read) * self.target.config.hidden_size


def _check(heads: HeadsCard, target: DecoderConfig, portion: Portion, device: torch.device) -> None:
    check_place(f"the head {heads.name}", portion, device)
    if (why := _why_unfit(heads, target)) is not None:
        raise ConfigError(
            f"speculation by the head {heads.name} cannot be had: {why}; choose "
            "--speculation auto or off",
            param="speculation",
        )


def _why_unfit(heads: HeadsCard, target: DecoderConfig) -> str | None:
    """With what it says of its target, this one cannot be that."""
    config = heads.config
    layers = config.layers_of(target.num_layers)
    if config.layer.vocab_size != target.vocab_size:
        return f"it is for {config.layer.vocab_size} tokens, the model has {target.vocab_size}"
    if config.target_hidden_size not in (None, target.hidden_size):
        return (
            f"it is for states of {config.target_hidden_size} values, the model's have "
            f"{target.hidden_size}"
        )
    is_rising = sorted(set(layers)) == list(layers)
    if not is_rising or layers[0] < 0 or layers[-1] >= target.num_layers:
        return f"it reads what comes into layers {layers} of a model of {target.num_layers}"
    return None


def heads_size(
    spec: EngineSpec, portion: Portion, device: torch.device
) -> HeadsSize | OwnLayerSize | None:
    """None: there is no head, or another rank has it. Raises ConfigError where one could not be
    used."""
    heads = spec.heads
    if heads is None:
        return None
    if heads.card is None:
        return OwnLayerSize.of(spec, portion, device)
    return HeadsSize.of(spec, heads.card, portion, device)


def states_left(spec: EngineSpec, size: HeadsSize | OwnLayerSize | None) -> tuple[int, ...]:
    """What steps leave at this rank: see Decoder. `size`: None: another rank has the head, or none
    does. What comes behind the last norm all ranks of a group compute for all rows, or none."""
    if size is not None:
        return size.layers_read
    heads = spec.heads
    is_own = heads is not None and heads.card is None and not heads.is_optional
    return (spec.card.config.num_layers,) if is_own else ()
