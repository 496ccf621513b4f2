"""What a vLLM server's answer says of itself while it passes: how many tokens, and the usage."""

from __future__ import annotations

import re

import msgspec

from cluster.generation import Usage

TAIL_BYTES = 1024
"""Of what has passed: a usage may be cut in two. Other fields, of any size, may follow it."""
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
        self._usage: bytes | None = None
        """The last that has passed."""
        self._held = b""
        self.num_events = 0
        """Of a stream, so far: about as many as tokens, since vLLM sends one for each step."""

    def take(self, piece: bytes) -> int:
        """Events that it has more; 0 for an answer in one piece."""
        seen = self._held + piece
        num_events = seen.count(_EVENT)
        self._held = seen[-(len(_EVENT) - 1) :]
        self._note_usage(self._tail + piece)
        self.num_events += num_events
        return num_events

    def usage(self, expected_cached: int) -> Usage | None:
        """As the server told it; None: it has not, or not so that it can be read. vLLM says what it
        had cached only where it was started with --enable-prompt-tokens-details; else as much as
        was `expected_cached`."""
        if self._usage is None:
            return None
        try:
            found = msgspec.json.decode(self._usage, type=ToldUsage)
        except msgspec.DecodeError:
            return None
        details = found.prompt_tokens_details
        cached = None if details is None else details.cached_tokens
        told = expected_cached if cached is None else cached
        return Usage(found.prompt_tokens, found.completion_tokens, told)

    def _note_usage(self, passing: bytes) -> None:
        self._tail = passing[-TAIL_BYTES:]
        if b'"usage"' in passing:
            for found in _USAGE.finditer(passing):
                self._usage = found.group(1)
