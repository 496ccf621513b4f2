"""What `--speculation` may say: a word, or the checkpoint whose guesses are verified."""

from __future__ import annotations

from typing import Final

from cluster.errors import ConfigError

HEADS: Final = "heads"
"""Layers of the model's own checkpoint that predict further tokens."""
NGRAM: Final = "ngram"
"""Prompt lookup, and a client's prediction."""
AUTO: Final = "auto"
SPECULATION_WORDS = (AUTO, "off", NGRAM, HEADS)


def asks_for_own_layer(speculation: str, *, has_own: bool) -> bool:
    """Whether the model's own layers guess. `has_own`: its checkpoint says that it has some; `auto`
    takes them then, where they can be had."""
    return speculation == HEADS or (speculation == AUTO and has_own)


def draft_model_of(speculation: str) -> str | None:
    """The source of a draft model or a head, as `--model` takes one; None: none is asked for.

    Raises ConfigError for what there is no drafter for.
    """
    if not speculation:
        raise ConfigError(
            f"speculation is empty; choose {', '.join(SPECULATION_WORDS)}, a smaller model or an "
            "EAGLE-3 checkpoint",
            param="speculation",
        )
    return None if speculation in SPECULATION_WORDS else speculation
