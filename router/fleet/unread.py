"""What workers have sent and no client has read, as bytes: so much of a stream, so much in all.

A client that reads a little every half minute is never dropped for standing still, and its worker
never waits: what lies between them grows for as long as the answer does.
"""

from __future__ import annotations

import msgspec

from cluster.generation import FinishReason, GeneratedToken

MAX_UNREAD_BYTES = 4 * 1024 * 1024
"""Of one stream: some 20,000 tokens, or 1,500 with twenty alternatives each."""
MAX_ALL_UNREAD_BYTES = 256 * 1024 * 1024
TOKEN_BYTES = 200
"""A token by itself, in its list and its place in line."""
ALTERNATIVE_BYTES = 120


class ChoiceTokens(msgspec.Struct, frozen=True, gc=False):
    """New tokens of one choice, in order. `finish_reason` comes with the choice's last tokens.

    Our own: a message on the wire would keep the whole frame that it came in, 15 to 60 kB of a step
    with 64 to 256 sequences.
    """

    choice: int
    tokens: list[GeneratedToken]
    finish_reason: FinishReason | None = None
    pooled: bytes | None = None
    """Of a prompt that is pooled, in place of tokens: float32, little-endian."""

    @property
    def num_bytes(self) -> int:
        """That it takes here, about: tokens of one request have equally many alternatives."""
        tokens = self.tokens
        if self.pooled is not None:
            return TOKEN_BYTES + len(self.pooled)
        num_top = len(tokens[0].top) if tokens else 0
        return TOKEN_BYTES + (len(tokens) - 1 + num_top * len(tokens)) * ALTERNATIVE_BYTES


class UnreadBytes:
    """Of all streams of a router. From the event loop only."""

    def __init__(
        self, *, max_bytes: int = MAX_ALL_UNREAD_BYTES, max_of_one: int = MAX_UNREAD_BYTES
    ) -> None:
        self._max_bytes = max_bytes
        self._max_of_one = max_of_one
        self.num = 0

    def has_room_for(self, num_bytes: int) -> bool:
        """Whether one stream may have so many of those counted: the more all have, the less; what
        is free bounds each, so that who reads is never in want of it."""
        return num_bytes <= self._max_of_one and num_bytes <= self._max_bytes - self.num
