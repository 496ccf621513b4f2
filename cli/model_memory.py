"""The memory part of `splitserve models show`: what a model takes, and what fits beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.errors import ConfigError
from cluster.models.card import ModelCard
from cluster.models.footprint import HEADROOM_SHARE, Footprint, footprint, parameters
from cluster.models.model_split import ModelSplit
from cluster.process.free_memory import free_memory_bytes

KV_FORMATS = ("auto", "int8", "fp8")
BATCH_CONTEXTS = (2048, 8192)


@dataclass(frozen=True, slots=True, kw_only=True)
class Formats:
    """As the options of `splitserve serve`."""

    dtype: str = "auto"
    weights: str = "auto"
    kv: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatChoice:
    """One choice of formats, resolved as for a footprint."""

    dtype: str
    weights: str
    kv: str

    @property
    def weights_in_words(self) -> str:
        """As a table shows them."""
        return self.dtype if self.weights == "full" else self.weights

    @property
    def kv_in_words(self) -> str:
        """As a table shows it."""
        return self.dtype if self.kv == "auto" else self.kv


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """One choice of formats, resolved."""

    weights: str
    kv: str
    weight_bytes: int
    kv_bytes_per_token: int
    max_context_tokens: int
    """Of one sequence; 0: the weights do not fit."""
    batches: dict[int, int]
    """Context tokens of each sequence -> sequences at once."""


def free_memory() -> int:
    """Bytes that programs can have on this machine now."""
    return free_memory_bytes()


def check_kv_format(kv: str) -> None:
    """Raises ConfigError for a format that there is not."""
    if kv not in KV_FORMATS:
        raise ConfigError(f"kv is {kv!r}; choose {', '.join(KV_FORMATS)}", param="kv")


def usable_memory(memory_bytes: int) -> int:
    """What an engine plans with: a device's memory without the headroom that it leaves."""
    return int(memory_bytes * (1 - HEADROOM_SHARE))


def format_choices(card: ModelCard, formats: Formats) -> list[FormatChoice]:
    """The formats asked for, then smaller ones. Raises ConfigError for an unknown format."""
    from engine.contract.spec import resolve_dtype, resolve_weights

    check_kv_format(formats.kv)
    dtype = resolve_dtype(card, formats.dtype)
    asked = resolve_weights(card, formats.weights, dtype, "cpu").value
    pairs = [(asked, formats.kv), (asked, "int8"), ("int8", "int8"), ("int4", "int8")]
    choices = [
        FormatChoice(dtype=dtype, weights=weights, kv=kv) for weights, kv in dict.fromkeys(pairs)
    ]
    sizes = [_footprint(card, choice).weight_bytes for choice in choices]
    return [choice for choice, size in zip(choices, sizes, strict=True) if size <= sizes[0]]


def memory_rows(
    card: ModelCard, choices: Sequence[FormatChoice], memory_bytes: int
) -> list[MemoryRow]:
    """What each choice takes, and what fits beside it."""
    return [_row(card, choice, usable_memory(memory_bytes)) for choice in choices]


def num_parameters(card: ModelCard) -> int:
    """All numbers of the model; a tied head counts once."""
    return parameters(card.config).total


def _footprint(card: ModelCard, choice: FormatChoice) -> Footprint:
    return footprint(
        ModelSplit(config=card.config),
        dtype=choice.dtype,
        weights=choice.weights,
        kv=choice.kv,
        stored_bytes=card.stored_bytes,
    )


def _row(card: ModelCard, choice: FormatChoice, memory_bytes: int) -> MemoryRow:
    needs = _footprint(card, choice)
    return MemoryRow(
        weights=choice.weights_in_words,
        kv=choice.kv_in_words,
        weight_bytes=needs.weight_bytes,
        kv_bytes_per_token=needs.kv_bytes_per_token,
        max_context_tokens=needs.largest_context(memory_bytes, card.config.max_context_tokens),
        batches=_batches(card, needs, memory_bytes),
    )


def _batches(card: ModelCard, needs: Footprint, memory_bytes: int) -> dict[int, int]:
    limit = card.config.max_context_tokens
    contexts = sorted({min(context, limit) for context in BATCH_CONTEXTS} | {limit})
    return {context: needs.largest_batch(memory_bytes, context) for context in contexts}
