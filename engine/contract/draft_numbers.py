"""What an engine has counted of its guesses of coming tokens."""

from __future__ import annotations

import enum

import msgspec


class DrafterKind(enum.StrEnum):
    """What a drafted token comes from."""

    NGRAM = "ngram"
    """Prompt lookup: what followed the last tokens before."""
    MODEL = "model"
    """A smaller model with the same tokens."""
    HEADS = "heads"
    """A head over the served model's own states."""
    GRAMMAR = "grammar"
    """Nobody's guess: the only token that the answer's grammar allows, whosever draft it is in."""


class DraftPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """What became of drafted tokens of one kind."""

    tried: list[int] = []
    """Tokens verified, by their place in the draft."""
    kept: list[int] = []
    """Those that were right."""


class DraftNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """What became of drafts since the engine's start."""

    by_drafter: dict[DrafterKind, DraftPlaces] = {}
    """Of those that have drafted."""
    num_steps: int = 0
    """Of sequences: each that was in a step with drafts counts as one."""
    num_tokens: int = 0
    """That these gave."""
    plain_s: float = 0.0
    """Seconds that plain steps would have taken for these tokens, by what such steps take."""
    took_s: float = 0.0
    """Seconds that the steps with drafts took, and all guessing: `plain_s` over this is the gain,
    1 without drafts."""
    guess_s: float = 0.0
    """Seconds that a model took to guess, and to read what its guesses follow."""
    out: list[DrafterKind] = []
    """Those that have failed too often: they are asked no more while the engine lives."""


class RequestDrafts(msgspec.Struct, frozen=True, kw_only=True):
    """What drafts were to one request, over its choices."""

    tried: list[int] = []
    """Tokens verified, by their place in the draft, as far as there were any."""
    kept: list[int] = []
    """Those that were right."""
    num_steps: int = 0
    """With drafts of anybody, each counted for each of its sequences in them."""
    num_tokens: int = 0
    """That these gave it."""
    gain: float = 0.0
    """Time that plain steps would have taken for these tokens, as measured, over what those with
    drafts took. 0: not known. The step that ends it is not over yet, and no part of this."""


NO_DRAFTS = RequestDrafts()
"""Of a request that was in no step with drafts."""
