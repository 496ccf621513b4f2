"""Reads a GGUF file's header: metadata and where the tensors lie. No weight is touched.

    "GGUF" version | num_tensors num_pairs | (key type value)* | (name dims type offset)* | data

The file is not trusted: every count is checked against what is left of the file before anything is
allocated, so a hostile header costs no more than its own size. Source: docs/gguf.md of ggml.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.gguf.types import bytes_of, name_of

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_PAIRS = 1 << 16
MAX_TENSORS = 1 << 17
MAX_NAME_BYTES = 1 << 16
MAX_DIMS = 4
MAX_ELEMENTS = 1 << 42
DEFAULT_ALIGNMENT = 32

Value = str | int | float | bool | list[str] | list[int] | list[float] | list[bool]


_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where one tensor lies. `shape` is row-major (the file stores it the other way round)."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    offset: int
    """From the start of the file, in bytes."""
    num_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What stands before the weights."""

    path: Path
    metadata: dict[str, Value]
    tensors: dict[str, GgufTensor]


def read_gguf_header(path: Path) -> GgufHeader:
    """Raises BadCheckpoint for a file that is not whole, UnsupportedModel for a foreign version."""
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) < 24:
                raise BadCheckpoint(f"{path} is {file.tell()} bytes: not a GGUF file")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(path, data).header()
    except OSError as error:
        raise BadCheckpoint(f"cannot read {path}: {error.strerror}") from error


class _Reader:
    """A cursor over the file that never passes its end."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._size = len(data)
        self._at = 0

    def header(self) -> GgufHeader:
        if self._take(4) != MAGIC:
            raise BadCheckpoint(f"{self._path} does not start with GGUF: not a GGUF file")
        version = self._scalar("I")
        if version not in VERSIONS:
            raise UnsupportedModel(f"{self._path} is GGUF version {version}; supported: 2 and 3")
        num_tensors = self._count("tensors", MAX_TENSORS)
        num_pairs = self._count("metadata pairs", MAX_PAIRS)
        metadata = self._table(num_pairs, self._pair)
        places = self._table(num_tensors, self._place)
        return GgufHeader(self._path, metadata, self._tensors(metadata, places))

    def _table(self, count: int, read: Callable[[], tuple[str, Any]]) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for _ in range(count):
            key, value = read()
            if key in table:
                raise self._bad(f"{key!r} appears twice")
            table[key] = value
        return table

    def _pair(self) -> tuple[str, Value]:
        key = self._string(MAX_NAME_BYTES)
        return key, self._value(key, self._scalar("I"))

    def _value(self, key: str, type_id: int) -> Value:
        if type_id == _STRING:
            return self._string()
        if type_id == _ARRAY:
            return self._array(key, self._scalar("I"))
        if type_id in _SCALARS:
            scalar: Value = self._scalar(_SCALARS[type_id])
            return scalar
        raise self._bad(f"{key!r} has unknown type {type_id}")

    def _array(self, key: str, type_id: int) -> Value:
        count = self._scalar("Q")
        if type_id == _STRING:
            if count > (self._size - self._at) // 8:
                raise self._bad(f"{key!r} claims {count} strings, more than the file can hold")
            return [self._string() for _ in range(count)]
        if type_id in _SCALARS:
            code = _SCALARS[type_id]
            raw = self._take(count * struct.calcsize(code))
            return list(struct.unpack(f"<{count}{code}", raw))
        raise self._bad(f"{key!r} is an array of type {type_id}; arrays hold scalars or strings")

    def _place(self) -> tuple[str, tuple[tuple[int, ...], int, int]]:
        name = self._string(MAX_NAME_BYTES)
        num_dims = self._scalar("I")
        if not 1 <= num_dims <= MAX_DIMS:
            raise self._bad(f"tensor {name!r} has {num_dims} dimensions; allowed: 1 to {MAX_DIMS}")
        dims = tuple(self._scalar("Q") for _ in range(num_dims))
        return name, (dims[::-1], self._scalar("I"), self._scalar("Q"))

    def _tensors(
        self, metadata: dict[str, Value], places: dict[str, tuple[tuple[int, ...], int, int]]
    ) -> dict[str, GgufTensor]:
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self._bad(f"general.alignment is {alignment!r}; it must be a power of two")
        start = -(-self._at // alignment) * alignment
        return {name: self._tensor(name, start, *place) for name, place in places.items()}

    def _tensor(
        self, name: str, start: int, shape: tuple[int, ...], type_id: int, offset: int
    ) -> GgufTensor:
        elements = 1
        for size in shape:
            elements *= size
            if not 0 < elements <= MAX_ELEMENTS:
                raise self._bad(f"tensor {name!r} has shape {shape}")
        num_bytes = bytes_of(type_id, elements, tensor=name)
        end = start + offset + num_bytes
        if end > self._size:
            raise self._bad(f"tensor {name!r} ends at byte {end:,}, the file at {self._size:,}")
        return GgufTensor(name, shape, name_of(type_id), start + offset, num_bytes)

    def _count(self, what: str, limit: int) -> int:
        count: int = self._scalar("Q")
        if count > limit:
            raise self._bad(f"it claims {count} {what}; allowed: {limit}")
        return count

    def _scalar(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}")))[0]

    def _string(self, max_bytes: int | None = None) -> str:
        size: int = self._scalar("Q")
        if max_bytes is not None and size > max_bytes:
            raise self._bad(f"a name of {size} bytes; allowed: {max_bytes}")
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise self._bad(f"a string before byte {self._at} is not UTF-8") from error

    def _take(self, num_bytes: int) -> bytes:
        end = self._at + num_bytes
        if end > self._size:
            raise self._bad(f"it needs byte {end:,} and ends at {self._size:,}")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _bad(self, what: str) -> BadCheckpoint:
        return BadCheckpoint(
            f"{self._path} is truncated or damaged: {what}; fetch or convert it again"
        )
