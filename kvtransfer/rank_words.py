"""What the ranks of a reading group say to each other: the conductor what is to be read, the others
what has become of it. msgpack within; whoever carries it does not look inside.
"""

from __future__ import annotations

import msgspec

from cluster.block_span import BlockRun, BlockSpan
from cluster.kv_peer import KvPeer


class ConnectPeer(msgspec.Struct, frozen=True, tag=True):
    """Its pool can be read."""

    incarnation: str
    peer: KvPeer


class DisconnectPeer(msgspec.Struct, frozen=True, tag=True):
    """It is gone."""

    incarnation: str


class ReadBlocks(msgspec.Struct, frozen=True, tag=True):
    """One job, as in ReadJob. Every rank reads its heads into the same slots; or one rank all of
    it into its own."""

    number: int
    """By which it is answered."""
    ranks: list[int]
    """Who reads."""
    request_id: str
    incarnation: str
    span: BlockSpan
    local_block_ids: list[int]
    into: BlockRun | None


class CancelReads(msgspec.Struct, frozen=True, tag=True):
    """Of a request."""

    request_id: str


class AbandonReads(msgspec.Struct, frozen=True, tag=True):
    """Of a request that has given a peer up."""

    request_id: str
    incarnation: str


class DropRead(msgspec.Struct, frozen=True, tag=True):
    """One job is read in vain: another rank has none of it."""

    number: int


ReaderWord = ConnectPeer | DisconnectPeer | ReadBlocks | CancelReads | AbandonReads | DropRead


class ReadEnded(msgspec.Struct, frozen=True):
    """A rank has let go of a job, as in ReadResult."""

    number: int
    verified: list[BlockRun]
    num_bytes: int
    duration_ms: float
    error: str


def pack(word: ReaderWord | ReadEnded) -> bytes:
    """For the channel."""
    return msgspec.msgpack.encode(word)


def unpack_word(packed: bytes) -> ReaderWord:
    """The inverse, at another rank. Raises msgspec.ValidationError."""
    return _words.decode(packed)


def unpack_ended(packed: bytes) -> ReadEnded:
    """The inverse, at the conductor. Raises msgspec.ValidationError."""
    return _endings.decode(packed)


_words: msgspec.msgpack.Decoder[ReaderWord] = msgspec.msgpack.Decoder(ReaderWord)
_endings = msgspec.msgpack.Decoder(ReadEnded)
