"""Reads a safetensors file's header: what types it holds, and whether the file is whole.

u64 header_bytes | JSON {name: {dtype, shape, data_offsets: [begin, end]}} | data
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.fields import Fields
from cluster.models.files.json_file import parse_json_object

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_QUANTIZED_DTYPES = _DTYPES | {
    "F8_E4M3": "float8_e4m3fn",
    "I8": "int8",
    "I32": "int32",
    "I64": "int64",
}


def bytes_by_dtype(path: Path, *, quantized: bool = False) -> Counter[str]:
    """Bytes of weights per dtype name.

    Raises BadCheckpoint for a truncated file, UnsupportedModel for a dtype that is not run.
    """
    allowed = _QUANTIZED_DTYPES if quantized else _DTYPES
    sizes: Counter[str] = Counter()
    header, data_bytes = _header(path)
    end_of_data = 0
    for name in header:
        if name != "__metadata__":
            entry = Fields(header, str(path)).section(name)
            dtype, begin, end = entry_of(entry, data_bytes, allowed)
            sizes[dtype] += end - begin
            end_of_data = max(end_of_data, end)
    if end_of_data != data_bytes:
        raise BadCheckpoint(
            f"{path} holds {data_bytes:,} bytes of weights, its header describes {end_of_data:,}; "
            "fetch it again"
        )
    return sizes


def _header(path: Path) -> tuple[dict[str, object], int]:
    """The header and the number of bytes after it."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            header_bytes = int.from_bytes(file.read(8), "little")
            if size < 8 or header_bytes > min(size - 8, MAX_HEADER_BYTES):
                raise BadCheckpoint(
                    f"{path} is truncated or damaged: {size:,} bytes, a header of "
                    f"{header_bytes:,}; fetch it again"
                )
            return parse_json_object(file.read(header_bytes), str(path)), size - 8 - header_bytes
    except OSError as error:
        raise BadCheckpoint(f"cannot read {path}: {error.strerror}") from error


def entry_of(entry: Fields, data_bytes: int, allowed: dict[str, str]) -> tuple[str, int, int]:
    """Of one tensor: its dtype by our name, where its bytes begin and end. Raises as
    bytes_by_dtype."""
    stored = entry.text("dtype")
    if stored not in allowed:
        raise UnsupportedModel(
            f"{entry.where} has dtype {stored!r}; supported: {', '.join(allowed)}"
        )
    span = entry.raw("data_offsets")
    whole = isinstance(span, list) and len(span) == 2 and all(type(at) is int for at in span)
    if not whole or not 0 <= span[0] <= span[1] <= data_bytes:
        raise BadCheckpoint(
            f"{entry.where}: data_offsets {span!r} lie outside the file's {data_bytes:,} bytes; "
            "it is truncated or damaged, fetch it again"
        )
    return allowed[stored], span[0], span[1]
