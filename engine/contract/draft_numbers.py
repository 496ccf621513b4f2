"""What an engine has counted of its guesses of coming tokens."""

from __future__ import annotations

import msgspec


class DraftNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """What became of drafts since the engine's start."""

    tried: list[int] = []
    """Tokens verified, by their place in the draft."""
    kept: list[int] = []
    """Those that were right."""
    num_steps: int = 0
    """Of sequences: each that was in a step with drafts counts as one."""
    num_tokens: int = 0
    """That these gave."""
