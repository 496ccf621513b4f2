"""What `--speculation` may say: a word, or the model whose guesses are verified."""

from __future__ import annotations

from cluster.errors import ConfigError

SPECULATION_WORDS = ("auto", "off", "ngram")
HEADS = "heads"


def draft_model_of(speculation: str) -> str | None:
    """The draft model's source, as `--model` takes one; None: no model is asked for.

    Raises ConfigError for what there is no drafter for.
    """
    if speculation == HEADS:
        raise ConfigError(
            "speculation is heads: a checkpoint's layers that predict further tokens, as "
            "DeepSeek's or EAGLE-3's, are not computed yet; choose auto, off, ngram or a smaller "
            "model",
            param="speculation",
        )
    if not speculation:
        raise ConfigError(
            "speculation is empty; choose auto, off, ngram or a smaller model", param="speculation"
        )
    return None if speculation in SPECULATION_WORDS else speculation
