"""Of an answer that another connection goes on with: whose tokens it begins with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FirstPart:
    """Of an answer that goes on for another connection: where its first tokens came from."""

    pairing_key: str
    """Only workers of this one would go on with the same tokens."""
    cached_tokens: int
    """Of the prompt, as the client is told."""
    adapter_digest: str = ""
    """Of the version that computes it; empty: the model alone."""
    draws: int = 0
    """Version of what a seed draws, at the worker that its latest tokens are from: only of one
    where it is equal the same ones come again."""
