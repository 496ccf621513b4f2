"""What a vLLM server's answer says of itself while it passes: how many tokens, and the usage."""

from __future__ import annotations

import re

import msgspec

from cluster.generation import Usage

TAIL_BYTES = 4096
"""In which the usage stands: it is the last thing, or nearly, of an answer of either kind."""
_EVENT = b"data: {"
_USAGE = re.compile(rb'"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})')
"""A text of an answer has its quotation marks behind backslashes."""


class CachedDetails(msgspec.Struct):
    """Of a prompt's tokens."""

    cached_tokens: int | None = None


class ToldUsage(msgspec.Struct):
    """OpenAI's, as far as it is of interest."""

    prompt_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: CachedDetails | None = None


class PassingAnswer:
    """Of one answer; `take` each piece, in order."""

    def __init__(self) -> None:
        self._tail = b""
        self._held = b""
        self.num_events = 0
        """Of a stream, so far: about as many as tokens, since vLLM sends one for each step."""
        self.has_body = False

    def take(self, piece: bytes) -> int:
        """Events that it has more; 0 for an answer in one piece."""
        self.has_body |= bool(piece)
        seen = self._held + piece
        num_events = seen.count(_EVENT)
        self._held = seen[-(len(_EVENT) - 1) :]
        self._tail = (self._tail + piece)[-TAIL_BYTES:]
        self.num_events += num_events
        return num_events

    def usage(self, expected_cached: int) -> Usage | None:
        """As the server told it; None: it has not, or not so that it can be read. vLLM says what it
        had cached only where it was started with --enable-prompt-tokens-details; else as much as
        was `expected_cached`."""
        listed = list(_USAGE.finditer(self._tail))
        if not listed:
            return None
        try:
            found = msgspec.json.decode(listed[-1].group(1), type=ToldUsage)
        except msgspec.DecodeError:
            return None
        details = found.prompt_tokens_details
        cached = None if details is None else details.cached_tokens
        told = expected_cached if cached is None else cached
        return Usage(found.prompt_tokens, found.completion_tokens, told)
