"""The served model, loaded: card, tokenizer, template; no weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from cluster import VERSION
from cluster.config import ModelOptions
from cluster.models.card import ModelCard
from cluster.models.text.chat_template import load_chat_template
from cluster.models.text.tokenizer import load_tokenizer
from cluster.process.startup import report_progress
from router.front.served_model import ServedModel
from router.text.tokenizer import Tokenizer

FINGERPRINT_CHARS = 12


def load_served_model(
    card: ModelCard, options: ModelOptions, context_limit: Callable[[], int]
) -> ServedModel:
    """Blocking, about half a second. Raises a ModelError."""
    report_progress("tokenizer")
    return load_text_side(card, options.served_name or card.name, context_limit)


def load_text_side(
    card: ModelCard, name: str, context_limit: Callable[[], int] | None = None
) -> ServedModel:
    """As `load_served_model`; without a limit of the workers', the model's own."""
    tokenizer = load_tokenizer(card)
    own_limit = card.config.max_context_tokens
    return ServedModel(
        name=name,
        tokenizer=tokenizer,
        template=load_chat_template(card),
        vocab_size=card.config.vocab_size,
        context_limit=context_limit or (lambda: own_limit),
        max_token_bytes=_longest_token_bytes(tokenizer, card.config.vocab_size),
        fingerprint=_fingerprint(card),
    )


def _longest_token_bytes(tokenizer: Tokenizer, vocab_size: int) -> int:
    lengths = (len(tokenizer.token_bytes(token_id)) for token_id in range(vocab_size))
    return max(1, max(lengths, default=1))


def _fingerprint(card: ModelCard) -> str:
    material = f"{VERSION}:{card.weights_digest}:{card.tokenizer_digest}".encode()
    return f"fp_{hashlib.sha256(material).hexdigest()[:FINGERPRINT_CHARS]}"
