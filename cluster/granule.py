"""What two block sizes have in common: the granule, of which blocks of both are made.

Pools of unequal block sizes are read, and their digests are compared, granule by granule. Sizes
that are multiples of UNIT_TOKENS all go together, any other goes with its equal alone: so workers
fall into classes, and two of one class can always pair.
"""

from __future__ import annotations

from math import gcd

UNIT_TOKENS = 8
"""So many rows of whatever width are whole 64-bit words, in which blocks are verified."""


def granule_tokens(ours: int, theirs: int) -> int | None:
    """Tokens of the largest run that blocks of both sizes are made of; None: they do not fit."""
    if ours == theirs:
        return ours
    return gcd(ours, theirs) if block_size_class(ours) == block_size_class(theirs) else None


def block_size_class(block_size_tokens: int) -> int:
    """Equal for sizes that go together. What is no size goes with nothing that is one."""
    is_multiple = block_size_tokens > 0 and block_size_tokens % UNIT_TOKENS == 0
    return UNIT_TOKENS if is_multiple else block_size_tokens
