"""Whether two checkpoints mean the same by the same token ids."""

from __future__ import annotations

from cluster.models.card import ModelCard
from cluster.models.text.tokenizer import CheckpointTokenizer, load_tokenizer


def spell_alike(one: ModelCard, other: ModelCard) -> bool:
    """By content: equal files, or as many tokens, each with the same text at the same id. How text
    is cut does not matter, as nothing is encoded twice. Raises BadCheckpoint or
    UnsupportedModel."""
    if one.tokenizer_digest == other.tokenizer_digest:
        return True
    return _tokens(load_tokenizer(one)) == _tokens(load_tokenizer(other))


def _tokens(tokenizer: CheckpointTokenizer) -> dict[str, int]:
    return tokenizer.backend.get_vocab(with_added_tokens=True)
