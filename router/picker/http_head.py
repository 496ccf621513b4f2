"""The head of a request, or of an answer, as a gateway shows it."""

from __future__ import annotations

from collections.abc import Sequence

from protos import ext_proc_pb2


class HttpHead:
    """Names in lower case; of a name that comes twice the first value counts, unless `all_of` is
    asked."""

    def __init__(self, message: ext_proc_pb2.HttpHeaders) -> None:
        self._values: dict[str, list[str]] = {}
        self.is_all = message.end_of_stream
        """No body follows."""
        for header in message.headers.headers:
            value = header.raw_value.decode("latin-1") or header.value
            self._values.setdefault(header.key.lower(), []).append(value)

    def get(self, name: str) -> str | None:
        """None: it has none of that name."""
        return next(iter(self.all_of(name)), None)

    def all_of(self, name: str) -> Sequence[str]:
        """In their order; empty: it has none of that name."""
        return self._values.get(name, ())

    @property
    def method(self) -> str:
        """Such as POST."""
        return self.get(":method") or ""

    @property
    def path(self) -> str:
        """Without what follows a question mark."""
        return (self.get(":path") or "").partition("?")[0]

    @property
    def status(self) -> int:
        """Of an answer; 0 for what is none."""
        text = self.get(":status") or ""
        return int(text) if text.isdecimal() and text.isascii() else 0
