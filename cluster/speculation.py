"""What `--speculation` may say: a word, or the model whose guesses are verified."""

from __future__ import annotations

SPECULATION_WORDS = ("auto", "off", "ngram")


def draft_model_of(speculation: str) -> str | None:
    """The draft model's source, as `--model` takes one; None: no model is asked for."""
    return None if speculation in SPECULATION_WORDS else speculation
