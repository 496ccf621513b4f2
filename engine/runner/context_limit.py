"""How many tokens one request may have, prompt and completion together."""

from __future__ import annotations

from cluster.engine_options import EngineOptions
from cluster.errors import ConfigError
from cluster.models.card import DecoderConfig


def resolve_context(config: DecoderConfig, options: EngineOptions, block_bytes: int) -> int:
    """The option, or the model's as far as an explicit pool reaches, of blocks of `block_bytes`.

    Raises ConfigError for more than the model was made for.
    """
    limit = config.max_context_tokens
    if options.max_context_tokens is not None:
        if options.max_context_tokens > limit:
            raise ConfigError(
                f"max_context_tokens is {options.max_context_tokens}; the model's limit is {limit}",
                param="max_context_tokens",
            )
        return options.max_context_tokens
    if options.kv_memory_bytes is not None:
        return min(limit, options.kv_memory_bytes // block_bytes * options.block_size_tokens)
    return limit
