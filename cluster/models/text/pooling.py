"""How a model pools, by its checkpoint and its fleet's options: alike at routers and workers."""

from __future__ import annotations

from dataclasses import replace

from cluster.common_options import ModelOptions
from cluster.errors import ConfigError
from cluster.models.card import ModelCard
from cluster.models.pooling import Pooling, PoolingKind, resolve_pooling
from cluster.models.text.tokenizer import load_tokenizer

_ANSWERS = ("yes", "no")


def pooling_of_model(card: ModelCard, options: ModelOptions) -> Pooling | None:
    """None: it does not. Raises ConfigError for options that do not go with the checkpoint."""
    pooling = resolve_pooling(card.pooling, options.pooling, matryoshka=options.matryoshka)
    if pooling is None:
        return None
    largest = max(pooling.dimensions or (), default=0)
    if largest > card.config.hidden_size:
        raise ConfigError(
            f"{card.name} states {largest} dimensions; its embeddings have "
            f"{card.config.hidden_size}"
        )
    if pooling.kind is not PoolingKind.YES_NO:
        return pooling
    return replace(pooling, answer_ids=_answer_ids(card))


def _answer_ids(card: ModelCard) -> tuple[int, int]:
    backend = load_tokenizer(card).backend
    yes, no = (backend.token_to_id(word) for word in _ANSWERS)
    if yes is None or no is None:
        raise ConfigError(
            f"--pooling is {PoolingKind.YES_NO}; the vocabulary of {card.name} has no tokens "
            f"{' and '.join(_ANSWERS)}",
            param="pooling",
        )
    return yes, no
