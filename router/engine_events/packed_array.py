"""A msgpack array that is read a slice at a time: one of a million items holds nobody up.

Items are found by a pattern, a few nanoseconds each, and no object is made before its slice is
asked for. What the pattern does not know is not read over, but refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import msgspec

MAX_SLICE_ITEMS = 4096
_STRIDES = tuple(1 << power for power in reversed(range(MAX_SLICE_ITEMS.bit_length())))
"""Any number of items is a sum of these, so that no pattern is compiled while events come."""
_T = TypeVar("_T")


def num_items(packed: bytes) -> tuple[int, int]:
    """Of a packed array: how many items, and where they begin. Raises ValueError for what is
    none."""
    kind = packed[0] if packed else 0
    if 0x90 <= kind <= 0x9F:
        return kind & 0x0F, 1
    num_bytes = {0xDC: 2, 0xDD: 4}.get(kind, 0)
    if not num_bytes or len(packed) < 1 + num_bytes:
        raise ValueError(f"an array was expected, not {packed[:1].hex() or 'nothing'}")
    return int.from_bytes(packed[1 : 1 + num_bytes], "big"), 1 + num_bytes


class ItemKind(Generic[_T]):
    """Items of one sort: `pattern` is one of them on the wire, `read` many of them at once."""

    def __init__(self, pattern: bytes, read: Callable[[bytes], list[_T]]) -> None:
        self.read = read
        self._strides = [(num, re.compile(b"(?s:%b){%d}" % (pattern, num))) for num in _STRIDES]

    def end_of(self, packed: bytes, start: int, count: int) -> int | None:
        """Where `count` items from `start` on end; None when one is of another sort."""
        for stride, pattern in self._strides:
            while count >= stride:
                found = pattern.match(packed, start)
                if found is None:
                    return None
                start, count = found.end(), count - stride
        return start


class PackedArray(Generic[_T]):
    """`packed` is a whole array as it came. Raises ValueError for what is none."""

    def __init__(self, packed: bytes, kind: ItemKind[_T]) -> None:
        self._packed = packed
        self._kind = kind
        self._num_items, self._start = num_items(packed)
        if self._num_items > len(packed) - self._start:
            raise ValueError(f"{self._num_items} items in {len(packed)} bytes")

    def __len__(self) -> int:
        return self._num_items

    def slices(self, size: int) -> Iterator[list[_T]]:
        """All items in order, `size` (at most MAX_SLICE_ITEMS) at a time, the last ones fewer.
        Raises ValueError at an item that is not of this kind."""
        assert 1 <= size <= MAX_SLICE_ITEMS
        at = self._start
        for first in range(0, self._num_items, size):
            count = min(size, self._num_items - first)
            end = self._kind.end_of(self._packed, at, count)
            if end is None:
                raise ValueError(f"one of items {first} to {first + count - 1} is malformed")
            yield self._kind.read(b"\xdc" + count.to_bytes(2, "big") + self._packed[at:end])
            at = end


TOKEN_IDS = ItemKind(
    rb"[\x00-\x7f]|\xcc.|\xcd..|\xce....", msgspec.msgpack.Decoder(list[int]).decode
)
"""0 to 2**32 - 1."""
BLOCK_HASHES = ItemKind(
    rb"[\x00-\x7f\xe0-\xff]|[\xcc\xd0].|[\xcd\xd1]..|[\xce\xd2]....|[\xcf\xd3].{8}"
    rb"|\xc4(?:\x08.{8}|\x10.{16}|\x14.{20}|\x20.{32}|\x40.{64})",
    msgspec.msgpack.Decoder(list[int | bytes]).decode,
)
"""64 bits with or without a sign, or a digest of a usual length."""
