"""The body of a request whose head offers another protocol (`Upgrade`; RFC 9110, 7.8).

The parser leaves what follows such a head to that protocol. We speak none, so it is a body as any
other: a parser of its own reads it, which is told how long the body is, and of no offer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import httptools

_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


class BodyListener(Protocol):
    """Hears of a body as it is parsed."""

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of its trailers."""

    def on_chunk_header(self) -> None:
        """Another chunk begins."""

    def on_body(self, body: bytes) -> None:
        """A piece of it."""

    def on_message_complete(self) -> None:
        """It has come to its end."""


def parser_of_body(
    listener: BodyListener, headers: Sequence[tuple[bytes, bytes]]
) -> httptools.HttpRequestParser | None:
    """For what follows a head with these headers; None where nothing does. Raises HttpParserError
    where they do not tell its end."""
    told = [b"%b: %b\r\n" % item for item in headers if item[0] in _FRAMING]
    relay = _Relay()
    parser = httptools.HttpRequestParser(relay)
    parser.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(told) + b"\r\n")
    if relay.is_over:
        return None
    relay.listener = listener
    return parser


class _Relay:
    """What the parser calls. Of the head that it is told nobody hears."""

    def __init__(self) -> None:
        self.listener: BodyListener | None = None
        self.is_over = False

    def on_message_begin(self) -> None:
        if self.is_over:
            raise httptools.HttpParserError("more than the body")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.listener is not None:
            self.listener.on_header(name, value)

    def on_chunk_header(self) -> None:
        if self.listener is not None:
            self.listener.on_chunk_header()

    def on_body(self, body: bytes) -> None:
        if self.listener is not None:
            self.listener.on_body(body)

    def on_message_complete(self) -> None:
        self.is_over = True
        if self.listener is not None:
            self.listener.on_message_complete()
