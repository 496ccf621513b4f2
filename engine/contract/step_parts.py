"""What a step may hold is divided among the homes of sequences. No torch."""

from __future__ import annotations

from cluster.engine_options import EngineOptions
from cluster.errors import ConfigError


def check_parts(options: EngineOptions) -> None:
    """Raises ConfigError where a step has less than one sequence, or token, for each home."""
    limits = {"max_num_seqs": options.max_num_seqs, "max_batch_tokens": options.max_batch_tokens}
    for param, limit in limits.items():
        if limit < options.num_homes:
            raise ConfigError(
                f"{param} is {limit}, and is divided among {options.num_homes} ranks with "
                f"sequences of their own; use {options.num_homes} or more",
                param=param,
            )
