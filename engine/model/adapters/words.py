"""What the conductor tells all ranks about adapters, itself among them; and what they are.

    StageAdapter    read an adapter into LoRA ranks that are nobody's, beside the steps
    SettleAdapter   say how far that is: placed at all ranks, once all have read; or given up by all
    ClearAdapter    a slot is nobody's any more

A word is ordered with the steps: every rank follows it between the same two.
"""

from __future__ import annotations

import msgspec


class StageAdapter(msgspec.Struct, frozen=True, tag=True):
    """Begins to read. What was staged before has been settled."""

    root: str
    folder: str
    digest: str
    slot: int
    start: int
    """The first of its LoRA ranks in the stacks."""
    lora_rank: int
    """How many of them it was given."""


class SettleAdapter(msgspec.Struct, frozen=True, tag=True):
    """Of the one that was staged last."""


class ClearAdapter(msgspec.Struct, frozen=True, tag=True):
    """Of an adapter that no row of a step has."""

    slot: int


AdapterWord = StageAdapter | SettleAdapter | ClearAdapter
_DECODER: msgspec.msgpack.Decoder[AdapterWord] = msgspec.msgpack.Decoder(AdapterWord)


def pack(word: AdapterWord) -> bytes:
    """For the way to other ranks."""
    return msgspec.msgpack.encode(word)


def unpack(body: bytes) -> AdapterWord:
    """Raises msgspec.DecodeError."""
    return _DECODER.decode(body)
