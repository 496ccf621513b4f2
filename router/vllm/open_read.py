"""A prompt's blocks, as a decode server was asked to read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from router.vllm.kept_blocks import KeptBlocks
from router.vllm.server import VllmServer
from router.vllm.server_numbers import ServerNumbers

MAX_COMPARED_TOKENS = 16
"""Of two beginnings: vLLM's blocks have no fewer, but where an operator has chosen smaller ones."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """By which requests find each other's blocks in a server's cache: nobody finds any without the
    first one."""

    root: bytes
    """Of the tenant's blocks."""
    salt_end: str
    first_tokens: tuple[int, ...]
    """Of the prompt, of a block at most."""

    @classmethod
    def of(
        cls, root: bytes, salt_end: str, token_ids: Sequence[int], numbers: ServerNumbers
    ) -> Beginning:
        """`numbers`: the server's."""
        num = min(numbers.block_size_tokens or MAX_COMPARED_TOKENS, MAX_COMPARED_TOKENS)
        return cls(root, salt_end, tuple(token_ids[:num]))

    def is_found_by(self, other: Beginning) -> bool:
        """Of a prompt that ends before a block does the answer fills it."""
        if (self.root, self.salt_end) != (other.root, other.salt_end):
            return False
        return all(a == b for a, b in zip(self.first_tokens, other.first_tokens, strict=False))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenRead:
    """From when the server is asked until somebody has judged it."""

    kept: KeptBlocks
    parameters: dict[str, Any]
    """As they were taken."""
    prefill: VllmServer
    """Which keeps the blocks."""
    prefill_ms: float
    """That it took for them."""
    beginning: Beginning
    """Under which they are cached."""
    decode_numbers: ServerNumbers
    """Of the decode server, by the last look before it was asked."""
    opened_s: float
    """When that was."""

    @property
    def salt_end(self) -> str:
        """Of the salt under which they are cached."""
        return self.beginning.salt_end

    def was_late(self, numbers: ServerNumbers | None) -> bool:
        """As the prefill server's numbers show by now; so where it could not be asked, or another
        process counts there, from nothing."""
        if numbers is None or numbers.started != self.kept.started:
            return True
        return self.kept.was_late(numbers.late_reads)
