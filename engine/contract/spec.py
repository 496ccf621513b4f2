"""What an engine process is told before it starts. No torch: the server writes it, the child reads.

The spec travels over the child's standard input; Ready, or EngineFailed, comes back on the channel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from cluster.engine_options import EngineOptions
from cluster.errors import ConfigError
from cluster.identity import Role
from cluster.models.card import ModelCard
from cluster.models.heads.card import HeadsCard
from cluster.models.pooling import Pooling
from engine.contract.weight_format import WeightFormat, resolve_weights

__all__ = [
    "DraftSpec",
    "EngineLaunch",
    "EngineSpec",
    "HeadsSpec",
    "resolve_dtype",
    "resolve_weights",
]
KV_DTYPES = ("float32", "bfloat16")


class DraftSpec(msgspec.Struct, frozen=True, kw_only=True, tag="model"):
    """A smaller model that guesses coming tokens; its tokenizer is the replica's."""

    card: ModelCard
    dtype: str
    weights: WeightFormat = WeightFormat.FULL


class HeadsSpec(msgspec.Struct, frozen=True, kw_only=True, tag="heads"):
    """A head over the replica's states that guesses coming tokens, in the replica's dtype."""

    card: HeadsCard | None
    """None: the model's own layers that predict further tokens."""
    is_optional: bool = False
    """Nobody named it: it is left out where it cannot be had, and lies in no block, so that no
    pairing depends on it."""


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One model replica. `dtype` is resolved: see `resolve_dtype`."""

    card: ModelCard
    dtype: str
    weights: WeightFormat = WeightFormat.FULL
    """See `resolve_weights`. The loader takes it as far as its device can: Ready has what became
    of it."""
    kv: str = "auto"
    """Of the KV cache: "auto" (as dtype), "int8" or "fp8"."""
    role: Role
    worker_id: str
    incarnation: str
    """Of the worker: names the transfer agent."""
    kv_transport: str = "nixl"
    options: EngineOptions = msgspec.field(default_factory=EngineOptions)
    pooling: Pooling | None = None
    """What prompts are made into beside text, or in its place; None: tokens are all it makes."""
    drafter: DraftSpec | HeadsSpec | None = None
    """What guesses beside the texts, of all that `options.speculation_wish` may ask for; None: no
    model and no head does."""
    run_folder: str = ""
    """For the engine's sockets; whoever starts the engine removes it afterwards. Empty: it makes,
    and removes, one of its own."""

    @property
    def draft(self) -> DraftSpec | None:
        """The drafter, where it is a model."""
        return self.drafter if isinstance(self.drafter, DraftSpec) else None

    @property
    def heads(self) -> HeadsSpec | None:
        """The drafter, where it is a head."""
        return self.drafter if isinstance(self.drafter, HeadsSpec) else None

    def pack(self) -> bytes:
        """Msgpack, for the ranks of this engine."""
        return msgspec.msgpack.encode(self, enc_hook=_path_to_text)

    @staticmethod
    def unpack(packed: bytes) -> EngineSpec:
        """The inverse of `pack`; raises msgspec.ValidationError on anything else."""
        return msgspec.msgpack.decode(packed, type=EngineSpec, dec_hook=_text_to_path)


class EngineLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """The spec, and how to reach the parent."""

    spec: EngineSpec
    commands_address: str
    """ZMQ endpoint: commands to the engine."""
    frames_address: str
    """ZMQ endpoint: messages from the engine."""

    def pack(self) -> bytes:
        """Msgpack, for the child's standard input."""
        return msgspec.msgpack.encode(self, enc_hook=_path_to_text)

    @staticmethod
    def unpack(packed: bytes) -> EngineLaunch:
        """The inverse of `pack`; raises msgspec.ValidationError on anything else."""
        return msgspec.msgpack.decode(packed, type=EngineLaunch, dec_hook=_text_to_path)


def resolve_dtype(card: ModelCard, dtype: str) -> str:
    """What "auto" means for this checkpoint: its own dtype, and bfloat16 for half and quantized."""
    if dtype == "auto":
        return "float32" if card.checkpoint_dtype == "float32" else "bfloat16"
    if dtype not in KV_DTYPES:
        raise ConfigError(
            f"dtype is {dtype!r}; choose auto, {' or '.join(KV_DTYPES)}", param="dtype"
        )
    return dtype


def _path_to_text(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in an engine spec")


def _text_to_path(kind: type, value: Any) -> Any:
    if kind is Path:
        return Path(value)
    raise TypeError(f"{kind.__name__} has no place in an engine spec")
