"""A list of an answer in one piece, encoded as its items come.

An answer's logprobs are megabytes: encoded at its end they would hold the event loop for as long as
the generation had time for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

_ENCODER = msgspec.json.Encoder()


class JsonList:
    """Items in the order in which they came, as JSON."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def extend(self, items: Sequence[Any]) -> None:
        """The next items, encoded at once."""
        if items:
            self._pieces.append(_ENCODER.encode(items)[1:-1])

    def after(self, first: JsonList) -> msgspec.Raw:
        """All of it behind the items of another list: only bytes are copied."""
        return msgspec.Raw(b"[" + b",".join([*first._pieces, *self._pieces]) + b"]")
