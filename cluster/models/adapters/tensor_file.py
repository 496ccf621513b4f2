"""The file of an adapter's tensors, read from its beginning to its end: a chunk is in memory at a
time. All of its bytes are hashed as they come.

u64 header_bytes | JSON {name: {dtype, shape, data_offsets: [begin, end]}} | data, without gaps
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from cluster.errors import AdapterRefused
from cluster.models.adapters.plain_file import CHUNK_BYTES, PlainFile
from cluster.models.adapters.tensors import AdapterTensor, tensors_of

MAX_HEADER_BYTES: Final = 4 << 20
"""Ten times what adapters of the largest models have: nothing else runs while it is parsed."""
_LENGTH_BYTES = 8

HashBytes = Callable[[bytes | memoryview], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRows:
    """Some rows of a tensor, as its file has them."""

    name: str
    dtype: str
    """As torch names it."""
    first: int
    """The number of the first of them."""
    width: int
    """Values of a row."""
    data: memoryview
    """Until the next rows are asked for: then it is theirs."""


class TensorFile:
    """header -> rows, each once. Both raise AdapterRefused and AdapterUnread."""

    def __init__(self, file: PlainFile, where: str) -> None:
        self._file, self._where = file, where
        self._tensors: dict[str, AdapterTensor] = {}
        self._data_bytes = 0

    def read_header(self, hash_bytes: HashBytes) -> dict[str, tuple[int, ...]]:
        """Shapes by name."""
        left = self._file.num_bytes - _LENGTH_BYTES
        if left < 0:
            raise self._damaged()
        length = self._file.take(_LENGTH_BYTES)
        header_bytes = int.from_bytes(length, "little")
        if header_bytes > min(left, MAX_HEADER_BYTES):
            raise self._damaged()
        header = self._file.take(header_bytes)
        hash_bytes(length)
        hash_bytes(header)
        self._data_bytes = left - header_bytes
        self._tensors = tensors_of(header, self._data_bytes, self._where)
        return {name: tensor.shape for name, tensor in self._tensors.items()}

    def rows(self, hash_bytes: HashBytes) -> Iterator[TensorRows]:
        """Of tensors that are matrices, as whoever has the shapes has seen."""
        ordered = sorted(self._tensors.items(), key=lambda item: item[1].begin)
        self._check_layout([tensor for _, tensor in ordered])
        room = memoryview(bytearray(self._room_bytes()))
        for name, tensor in ordered:
            num_rows, width = tensor.shape
            row_bytes = tensor.num_bytes // num_rows
            at_once = max(1, CHUNK_BYTES // row_bytes)
            for first in range(0, num_rows, at_once):
                data = room[: min(at_once, num_rows - first) * row_bytes]
                self._file.fill(data)
                hash_bytes(data)
                yield TensorRows(name=name, dtype=tensor.dtype, first=first, width=width, data=data)
        self._file.end()

    def _room_bytes(self) -> int:
        """For a chunk of the largest tensor, and one row of any."""
        tensors = self._tensors.values()
        longest_row = max(tensor.num_bytes // tensor.shape[0] for tensor in tensors)
        return max(longest_row, min(CHUNK_BYTES, max(tensor.num_bytes for tensor in tensors)))

    def _check_layout(self, tensors: list[AdapterTensor]) -> None:
        end = 0
        for tensor in tensors:
            if tensor.begin != end or tensor.end - tensor.begin != tensor.num_bytes:
                raise self._damaged()
            end = tensor.end
        if end != self._data_bytes:
            raise self._damaged()

    def _damaged(self) -> AdapterRefused:
        size = self._file.num_bytes
        return AdapterRefused(f"{self._where} is truncated or damaged: {size:,} bytes")
