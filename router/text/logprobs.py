"""Tokens and their alternatives, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from router.text.choice import ShownToken
from router.text.tokenizer import Tokenizer

LOWEST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON cannot say."""


@dataclass(frozen=True, slots=True)
class TokenProbability:
    """A token in words; incomplete bytes show as U+FFFD in `text` and exactly in `raw`."""

    text: str
    raw: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token that was chosen, where its text begins, and what else could have been."""

    chosen: TokenProbability
    top: tuple[TokenProbability, ...]
    text_offset_chars: int


def score(tokens: Sequence[ShownToken], tokenizer: Tokenizer) -> list[ScoredToken]:
    """The shown ones among `tokens`. A token without a logprob counts as certain (0.0)."""
    return [_scored(token, tokenizer) for token in tokens if token.shown]


def _scored(shown: ShownToken, tokenizer: Tokenizer) -> ScoredToken:
    token = shown.token
    logprob = 0.0 if token.logprob is None else token.logprob
    chosen = _named(token.token_id, logprob, tokenizer)
    top = tuple(_named(token_id, value, tokenizer) for token_id, value in token.top)
    return ScoredToken(chosen, top, shown.text_offset_chars)


def _named(token_id: int, logprob: float, tokenizer: Tokenizer) -> TokenProbability:
    return TokenProbability(
        tokenizer.token_text(token_id),
        tokenizer.token_bytes(token_id),
        max(logprob, LOWEST_LOGPROB),
    )
