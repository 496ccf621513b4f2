"""The weights of an EAGLE-3 head, as they are multiplied: in the target's dtype, none quantized."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from cluster.errors import BadCheckpoint
from cluster.models.heads.card import HeadsCard, HeadsConfig
from cluster.models.heads.tensors import (
    EMBEDDING,
    FINAL_NORM,
    FUSE,
    LM_HEAD,
    TOKEN_OFFSETS,
    needed_shapes,
    optional_shapes,
)
from engine.model.weights.checkpoint import Checkpoint
from engine.model.weights.safetensors_checkpoint import SafetensorsCheckpoint

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadsWeights:
    """Matrices are [out, in]; norms float32 [hidden]."""

    fuse: torch.Tensor  # [hidden, target's width]
    qkv: torch.Tensor  # [(num_heads + 2 * num_kv_heads) * head_dim, 2 * hidden]
    o: torch.Tensor  # [hidden, num_heads * head_dim]
    gate_up: torch.Tensor  # [2 * intermediate, hidden]
    down: torch.Tensor  # [hidden, intermediate]
    embedding_norm: torch.Tensor
    state_norm: torch.Tensor
    feed_forward_norm: torch.Tensor
    final_norm: torch.Tensor
    lm_head: torch.Tensor  # [draft_vocab, hidden]
    embedding: torch.Tensor | None  # [vocab, hidden]; None: the target's
    token_ids: torch.Tensor | None
    """int64 [draft_vocab]: the target's, of what may be guessed; None: all of them, in order."""

    def to(self, device: torch.device) -> HeadsWeights:
        """These on that device: the same where they are there."""
        there: dict[str, Any] = {}
        for name in (field.name for field in fields(self)):
            tensor: torch.Tensor | None = getattr(self, name)
            there[name] = None if tensor is None else tensor.to(device)
        return replace(self, **there)


def read_heads(card: HeadsCard, dtype: torch.dtype, *, target_width: int) -> HeadsWeights:
    """`target_width`: of the target's states side by side. Raises BadCheckpoint with the name of
    the first tensor that is missing, extra or of a wrong shape or kind."""
    checkpoint, config = SafetensorsCheckpoint(card.weight_files), card.config
    _check(checkpoint, config, target_width)
    reader = _Reader(checkpoint, dtype)
    layer = config.layer_prefix
    return HeadsWeights(
        fuse=reader.matrix(FUSE),
        qkv=reader.matrix(*(f"{layer}self_attn.{name}_proj.weight" for name in "qkv")),
        o=reader.matrix(f"{layer}self_attn.o_proj.weight"),
        gate_up=reader.matrix(*(f"{layer}mlp.{name}_proj.weight" for name in ("gate", "up"))),
        down=reader.matrix(f"{layer}mlp.down_proj.weight"),
        embedding_norm=reader.norm(f"{layer}input_layernorm.weight"),
        state_norm=reader.norm(f"{layer}hidden_norm.weight"),
        feed_forward_norm=reader.norm(f"{layer}post_attention_layernorm.weight"),
        final_norm=reader.norm(FINAL_NORM),
        lm_head=reader.matrix(LM_HEAD),
        embedding=reader.matrix(EMBEDDING) if EMBEDDING in checkpoint.names() else None,
        token_ids=_token_ids(checkpoint, config),
    )


def has_embedding(card: HeadsCard) -> bool:
    """False: it reads its target's. Raises BadCheckpoint."""
    return EMBEDDING in SafetensorsCheckpoint(card.weight_files).names()


class _Reader:
    """Of floats alone: a quantized head is not run."""

    def __init__(self, checkpoint: Checkpoint, dtype: torch.dtype) -> None:
        self._checkpoint, self._dtype = checkpoint, dtype

    def matrix(self, *names: str) -> torch.Tensor:
        """Several are put together by rows."""
        parts: Sequence[torch.Tensor] = [self._floats(name).to(self._dtype) for name in names]
        return parts[0] if len(parts) == 1 else torch.cat(list(parts))

    def norm(self, name: str) -> torch.Tensor:
        """In float32."""
        return self._floats(name).float()

    def _floats(self, name: str) -> torch.Tensor:
        tensor = self._checkpoint.read(name)
        if tensor.dtype not in _FLOATS:
            raise BadCheckpoint(f"{name} of the head is {tensor.dtype}; a head is of floats")
        return tensor


def _check(checkpoint: Checkpoint, config: HeadsConfig, target_width: int) -> None:
    needed, found = needed_shapes(config, target_width), checkpoint.names()
    optional = optional_shapes(config)
    for name in needed:
        if name not in found:
            raise BadCheckpoint(f"the head's checkpoint lacks {name}; download it again")
    for name in sorted(found):
        shape = needed.get(name, optional.get(name))
        if shape is None:
            raise BadCheckpoint(
                f"the head's checkpoint has {name}, which a head of this configuration does not "
                "use; the file and its configuration do not fit together"
            )
        if checkpoint.shape(name) != shape:
            raise BadCheckpoint(
                f"{name} of the head has shape {checkpoint.shape(name)}; its configuration and the "
                f"target say {shape}"
            )


def _token_ids(checkpoint: Checkpoint, config: HeadsConfig) -> torch.Tensor | None:
    """Raises BadCheckpoint for ids that the target does not have."""
    if TOKEN_OFFSETS not in checkpoint.names():
        return None
    offsets = checkpoint.read(TOKEN_OFFSETS)
    if offsets.dtype not in (torch.int64, torch.int32):
        raise BadCheckpoint(f"{TOKEN_OFFSETS} of the head is {offsets.dtype}; it must be integers")
    token_ids = offsets.long() + torch.arange(config.draft_vocab_size)
    if int(token_ids.min()) < 0 or int(token_ids.max()) >= config.layer.vocab_size:
        raise BadCheckpoint(
            f"{TOKEN_OFFSETS} of the head leads to token {int(token_ids.max())}; there are "
            f"{config.layer.vocab_size}"
        )
    if len(set(token_ids.tolist())) != len(token_ids):
        raise BadCheckpoint(f"{TOKEN_OFFSETS} of the head leads to a token twice")
    return token_ids
