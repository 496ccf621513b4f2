"""Tokens and their alternatives, as text."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from router.text.choice import ShownToken
from router.text.tokenizer import Tokenizer

LOWEST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON cannot say."""


class TokenProbability(msgspec.Struct, frozen=True, gc=False):
    """A token in words; incomplete bytes show as U+FFFD in `text` and exactly in `raw`."""

    text: str
    raw: bytes
    logprob: float


class ScoredToken(msgspec.Struct, frozen=True, gc=False):
    """A token that was chosen, where its text begins, and what else could have been."""

    chosen: TokenProbability
    top: tuple[TokenProbability, ...]
    text_offset_chars: int


def score(
    tokens: Sequence[ShownToken], tokenizer: Tokenizer, *, unshown: bool = False
) -> list[ScoredToken]:
    """The shown ones among `tokens`, or all. A token without a logprob counts as certain (0.0)."""
    return [_scored(token, tokenizer) for token in tokens if token.shown or unshown]


def _scored(shown: ShownToken, tokenizer: Tokenizer) -> ScoredToken:
    token = shown.token
    logprob = 0.0 if token.logprob is None else token.logprob
    chosen = named(token.token_id, logprob, tokenizer)
    top = tuple(named(token_id, value, tokenizer) for token_id, value in token.top)
    return ScoredToken(chosen, top, shown.text_offset_chars)


def top_by_text(chosen: TokenProbability, top: Sequence[TokenProbability]) -> dict[str, float]:
    """By text, the chosen one always among them; of several with one text the likeliest counts."""
    best = {chosen.text: chosen.logprob}
    for other in top:
        best[other.text] = max(other.logprob, best.get(other.text, other.logprob))
    return best


def named(token_id: int, logprob: float, tokenizer: Tokenizer) -> TokenProbability:
    """A token with its text and bytes; minus infinity becomes LOWEST_LOGPROB."""
    return TokenProbability(
        tokenizer.token_text(token_id),
        tokenizer.token_bytes(token_id),
        max(logprob, LOWEST_LOGPROB),
    )
