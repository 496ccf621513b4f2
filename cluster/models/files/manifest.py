"""What a fetched model's weight files hash to, in a file beside them: it goes where they go.

    .digests    {"files": {name: {"size": bytes, "mtime_ns": ns or null, "sha256": hex}}}

Written when all is there and checked. It is believed of a file of the same size whose time is as
stated, or that time rounded down within its second, as images and some disks keep it. Where the
mount is read-only any earlier time will do: tools that build images set times back. A file that
was written later is never believed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.errors import BadCheckpoint
from cluster.models.files.disk import landing, on_read_only_mount
from cluster.models.files.json_file import read_json_object

MANIFEST = ".digests"
_NS_PER_S = 1_000_000_000
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedFile:
    """One file, by whoever fetched it or by the hub."""

    size_bytes: int
    sha256: str
    """Hex, of the whole file."""
    mtime_ns: int | None = None
    """When the file was last written; None: it is not here, the hub says what it would hold."""


def stated_file(path: Path, digest_of: Callable[[Path], str]) -> StatedFile:
    """The time is taken before the content is: what is written meanwhile is later."""
    stat = path.stat()
    return StatedFile(size_bytes=stat.st_size, mtime_ns=stat.st_mtime_ns, sha256=digest_of(path))


def write_manifest(folder: Path, files: Mapping[str, StatedFile]) -> None:
    """Whole or not at all. Raises OSError."""
    stated = {
        name: {"size": file.size_bytes, "mtime_ns": file.mtime_ns, "sha256": file.sha256}
        for name, file in sorted(files.items())
    }
    with landing(folder / MANIFEST) as target:
        target.write(json.dumps({"files": stated}).encode())


def read_manifest(folder: Path) -> dict[str, StatedFile]:
    """By name; empty where there is none. Entries that are damaged are left out."""
    try:
        files = read_json_object(folder / MANIFEST).get("files")
    except BadCheckpoint:
        return {}
    entries = files.items() if isinstance(files, dict) else ()
    stated = ((name, _entry(value)) for name, value in entries)
    return {name: file for name, file in stated if file is not None}


def believed_digest(path: Path) -> str | None:
    """What the manifest beside `path` says of it; None where it says nothing that still fits."""
    stated = read_manifest(path.parent).get(path.name)
    if stated is None or stated.mtime_ns is None:
        return None
    stat = path.stat()
    if stat.st_size != stated.size_bytes or stat.st_mtime_ns > stated.mtime_ns:
        return None
    if is_same_time(stat.st_mtime_ns, stated.mtime_ns) or on_read_only_mount(path):
        return stated.sha256
    return None


def is_same_time(now_ns: int, then_ns: int) -> bool:
    """Whether a file's time is the recorded one, or that one rounded down within its second."""
    return now_ns <= then_ns and now_ns // _NS_PER_S == then_ns // _NS_PER_S


def _entry(value: Any) -> StatedFile | None:
    if not isinstance(value, dict):
        return None
    size, mtime_ns, sha256 = (value.get(key) for key in ("size", "mtime_ns", "sha256"))
    if type(size) is not int or not (mtime_ns is None or type(mtime_ns) is int):
        return None
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        return None
    return StatedFile(size_bytes=size, mtime_ns=mtime_ns, sha256=sha256)
