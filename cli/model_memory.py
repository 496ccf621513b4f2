"""The memory part of `splitserve models show`: what a model takes, and what fits beside it."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.errors import ConfigError
from cluster.models.card import ModelCard
from cluster.models.footprint import Footprint, footprint, parameters
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


def memory_rows(card: ModelCard, formats: Formats, memory_bytes: int) -> list[MemoryRow]:
    """The formats asked for, then smaller ones. Raises ConfigError for an unknown format."""
    from engine.contract.spec import resolve_dtype, resolve_weights

    check_kv_format(formats.kv)
    dtype = resolve_dtype(card, formats.dtype)
    asked = resolve_weights(card, formats.weights, dtype, "cpu").value
    choices = [(asked, formats.kv), (asked, "int8"), ("int8", "int8"), ("int4", "int8")]
    rows = [
        _row(card, memory_bytes, dtype=dtype, weights=weights, kv=kv)
        for weights, kv in dict.fromkeys(choices)
    ]
    return [row for row in rows if row.weight_bytes <= rows[0].weight_bytes]


def num_parameters(card: ModelCard) -> int:
    """All numbers of the model; a tied head counts once."""
    return parameters(card.config).total


def _row(card: ModelCard, memory_bytes: int, *, dtype: str, weights: str, kv: str) -> MemoryRow:
    needs = footprint(
        ModelSplit(config=card.config),
        dtype=dtype,
        weights=weights,
        kv=kv,
        stored_bytes=card.stored_bytes,
    )
    return MemoryRow(
        weights=dtype if weights == "full" else weights,
        kv=dtype if kv == "auto" else kv,
        weight_bytes=needs.weight_bytes,
        kv_bytes_per_token=needs.kv_bytes_per_token,
        max_context_tokens=needs.largest_context(memory_bytes, card.config.max_context_tokens),
        batches=_batches(card, needs, memory_bytes),
    )


def _batches(card: ModelCard, needs: Footprint, memory_bytes: int) -> dict[int, int]:
    limit = card.config.max_context_tokens
    contexts = sorted({min(context, limit) for context in BATCH_CONTEXTS} | {limit})
    return {context: needs.largest_batch(memory_bytes, context) for context in contexts}
