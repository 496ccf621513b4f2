"""Whether a prompt ends inside a thought, which its template has begun."""

from __future__ import annotations

from collections.abc import Sequence

from router.text.tokenizer import Tokenizer
from router.tools.thoughts import ThoughtFormat

TAIL_TOKENS = 32
"""A template that begins a thought does so at the very end, where spaces may follow."""


def opens_thought(
    thoughts: ThoughtFormat | None, token_ids: Sequence[int], tokenizer: Tokenizer
) -> bool:
    """True: the answer's first character is part of it."""
    if thoughts is None:
        return False
    raw = b"".join(tokenizer.token_bytes(token_id) for token_id in token_ids[-TAIL_TOKENS:])
    return thoughts.is_open_after(raw.decode(errors="replace"))
