"""What the conductor tells all ranks about adapters, itself among them; and what they are.

    Stage    read an adapter into ranks that are nobody's, beside the steps
    Settle   say how far that is: placed at all ranks, once all have read; or given up by all
    Clear    a slot is nobody's any more

A word is ordered with the steps: every rank follows it between the same two.
"""

from __future__ import annotations

import msgspec


class Stage(msgspec.Struct, frozen=True, tag=True):
    """Begins to read. What was staged before has been settled."""

    root: str
    folder: str
    digest: str
    slot: int
    start: int
    """The first of its ranks in the stacks."""


class Settle(msgspec.Struct, frozen=True, tag=True):
    """Of the one that was staged last."""


class Clear(msgspec.Struct, frozen=True, tag=True):
    """Of an adapter that no row of a step has."""

    slot: int


AdapterWord = Stage | Settle | Clear
_DECODER: msgspec.msgpack.Decoder[AdapterWord] = msgspec.msgpack.Decoder(AdapterWord)


def pack(word: AdapterWord) -> bytes:
    """For the way to other ranks."""
    return msgspec.msgpack.encode(word)


def unpack(body: bytes) -> AdapterWord:
    """Raises msgspec.DecodeError."""
    return _DECODER.decode(body)
