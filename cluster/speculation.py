"""What `--speculation` may say: a word, or the checkpoint whose guesses are verified."""

from __future__ import annotations

from typing import Final

from cluster.errors import ConfigError

HEADS: Final = "heads"
"""Layers of the model's own checkpoint that predict further tokens."""
NGRAM: Final = "ngram"
"""Prompt lookup, and a client's prediction."""
SPECULATION_WORDS = ("auto", "off", NGRAM, HEADS)


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
