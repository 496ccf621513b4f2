"""Which pools a model needs: one that makes no text has nobody to decode it."""

from __future__ import annotations

from dataclasses import replace

from cluster.config import ServeOptions
from cluster.errors import ConfigError
from cluster.models.card import ModelCard
from cluster.models.text.pooling import pooling_of_model


def with_pools_for(card: ModelCard, options: ServeOptions) -> ServeOptions:
    """Without decode workers where the model makes no text. Raises ConfigError for pools that could
    not serve it."""
    pooling = pooling_of_model(card, options.model)
    if pooling is not None and options.prefill < 1:
        raise ConfigError(
            f"{card.name} pools prompts, which prefill workers do, and --prefill is 0",
            param="prefill",
        )
    if pooling is not None and not pooling.generates:
        return replace(options, decode=0, decode_warm_spares=0)
    if options.decode < 1 and pooling is None:
        raise ConfigError(
            f"--decode is 0: nobody would make text with {card.name}, and it makes nothing else; "
            "see --pooling",
            param="decode",
        )
    return options
