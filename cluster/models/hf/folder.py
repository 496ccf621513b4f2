"""Which files of a Hugging Face folder are the weights. Names in its index are not trusted."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.fields import Fields
from cluster.models.files.json_file import read_json_object
from cluster.models.hf.safetensors_header import bytes_by_dtype

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
MAX_SHARDS = 4096
_SHARD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.safetensors")


def weight_files_of(folder: Path) -> tuple[Path, ...]:
    """The shards, sorted by name; raises BadCheckpoint for a missing one or one outside."""
    if not (folder / INDEX).is_file() and not (folder / SINGLE).exists():
        raise UnsupportedModel(
            f"{folder} has no {SINGLE} or {INDEX}; only safetensors (or a .gguf file) are read"
        )
    return tuple(_inside(folder, name) for name in weight_names_of(folder))


def weight_names_of(folder: Path) -> list[str]:
    """Sorted; they need not be here. Raises BadCheckpoint for a bad index."""
    return _shard_names(folder / INDEX) if (folder / INDEX).is_file() else [SINGLE]


def dtype_of_files(files: tuple[Path, ...], *, quantized: bool = False) -> str:
    """The dtype that most bytes have; every file is checked to be whole on the way.

    Integers and 8-bit floats are weights only where the model is `quantized`.
    """
    sizes: Counter[str] = Counter()
    for path in files:
        sizes.update(bytes_by_dtype(path, quantized=quantized))
    if not sizes:
        raise BadCheckpoint(f"{files[0].parent} has no tensors in its weight files")
    return sizes.most_common(1)[0][0]


def _shard_names(index: Path) -> list[str]:
    weight_map = Fields(read_json_object(index), str(index)).raw("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise BadCheckpoint(f"{index} has no weight_map; fetch it again")
    names = {str(name) for name in weight_map.values()}
    if len(names) > MAX_SHARDS:
        raise BadCheckpoint(f"{index} names {len(names)} shards; allowed: {MAX_SHARDS}")
    for name in names:
        if not _SHARD_NAME.fullmatch(name):
            raise BadCheckpoint(
                f"{index} names shard {name[:80]!r}; a shard is a plain .safetensors file name"
            )
    return sorted(names)


def _inside(folder: Path, name: str) -> Path:
    """The file; a link may lead inside the folder, or to the blobs of a Hugging Face cache."""
    path = folder / name
    if not path.is_file():
        raise BadCheckpoint(f"{folder} lacks {name}; fetch the model again")
    target, home = path.resolve(), folder.resolve()
    blobs = home.parent.parent / "blobs"
    if not (target.is_relative_to(home) or target.is_relative_to(blobs)):
        raise BadCheckpoint(f"{path} is a link to {target}, outside the model's folder")
    return path
