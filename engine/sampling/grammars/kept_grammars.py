"""Grammars that are kept compiled for whoever asks again: so many, and so many bytes by estimate,
in shares of their owners (see KeptInShares)."""

from __future__ import annotations

from typing import TypeVar

from cluster.kept_in_shares import KeptInShares
from cluster.models.text.grammars import MAX_LEXER_STATES

MAX_KEPT = 128
"""Of an engine, whose tenants have each their own. Those that run keep theirs in any case."""
MAX_KEPT_BYTES = 256 << 20
"""By `likely_bytes` and `grown_bytes`, of an engine."""
BASE_BYTES = 256 << 10
BYTES_PER_TEXT_BYTE = 512
"""The most of twelve kinds of grammars was 365: a literal of 30 kB took 10.8 MB of memory."""
BYTES_PER_TOKEN = 10 << 10
"""That an answer adds to the compile that it shares with others, at most: strings of one length
that is in the tens of thousands. A usual schema's hundreds of tokens add 0.4 MB together."""
MAX_GROWN_BYTES = MAX_LEXER_STATES * 512

Kept = TypeVar("Kept")


def likely_bytes(num_text_bytes: int) -> int:
    """Of a grammar with so long a text, compiled, with its first mask."""
    return BASE_BYTES + BYTES_PER_TEXT_BYTE * num_text_bytes


def grown_bytes(num_tokens: int) -> int:
    """What answers with so many tokens together have added to one compile, at most."""
    return min(MAX_GROWN_BYTES, BYTES_PER_TOKEN * num_tokens)


class KeptGrammars(KeptInShares[bytes, Kept]):
    """An engine's, by digest."""

    def __init__(self, most: int = MAX_KEPT, most_bytes: int = MAX_KEPT_BYTES) -> None:
        super().__init__(most, most_bytes)
