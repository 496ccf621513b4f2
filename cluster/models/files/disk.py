"""Files land whole or not at all; what went wrong on disk gets its own error."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from cluster.errors import ChecksumMismatch, ConfigError, DiskFull
from cluster.home import default_home, home_limit_bytes
from cluster.models.files.progress import ByteProgress, silent

CHUNK_BYTES = 1 << 20
_FULL = {errno.ENOSPC, errno.EDQUOT}
_READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def disk_errors(place: Path, *, needed_bytes: int | None = None) -> Iterator[None]:
    """Turns "no space" into DiskFull and "not writable" into ConfigError; the rest passes."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise disk_full(place, needed_bytes=needed_bytes) from error
        if error.errno in _READ_ONLY:
            raise ConfigError(
                f"the model cache {place} is not writable ({error.strerror}); "
                "set SPLITSERVE_HOME to a folder that is"
            ) from error
        raise


def disk_full(place: Path, *, needed_bytes: int | None) -> DiskFull:
    """The error, with what is free and what is needed."""
    needed = f", {needed_bytes:,} are needed" if needed_bytes is not None else ""
    return DiskFull(
        f"no room in the model cache {place}: {free_bytes(place):,} bytes are free{needed}; "
        "free some space or set SPLITSERVE_HOME to a folder on a larger disk (in the chart: give "
        "model.cache.size more)"
    )


def require_free(place: Path, needed_bytes: int) -> None:
    """Raises DiskFull before anything is fetched that could not be kept."""
    if free_bytes(place) < needed_bytes:
        raise disk_full(place, needed_bytes=needed_bytes)


def free_bytes(place: Path) -> int:
    """What may still be written there: of the disk, and in the home of what it may hold."""
    existing = next((path for path in (place, *place.parents) if path.exists()), Path("/"))
    free = shutil.disk_usage(existing).free
    limit = home_limit_bytes()
    if limit is None or not place.is_relative_to(home := default_home()):
        return free
    return max(0, min(free, limit - tree_bytes(home)))


def on_read_only_mount(path: Path) -> bool:
    """Whether nobody writes there through this mount."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


@contextmanager
def landing(final: Path) -> Iterator[BinaryIO]:
    """A file that appears under its name, synced, when the block ends well; else it is removed."""
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = final.with_name(f".{final.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(final)
    finally:
        partial.unlink(missing_ok=True)


def copy_stream(
    source: IO[bytes], target: IO[bytes], total_bytes: int, progress: ByteProgress
) -> str:
    """Copies at most `total_bytes` + 1 and returns their hex SHA-256: a longer source shows."""
    digest, done = hashlib.sha256(), 0
    while done <= total_bytes and (chunk := source.read(min(CHUNK_BYTES, total_bytes + 1 - done))):
        target.write(chunk)
        digest.update(chunk)
        done += len(chunk)
        progress("unpack", min(done, total_bytes), total_bytes)
    return digest.hexdigest()


def sha256_of(path: Path, progress: ByteProgress = silent) -> str:
    """Hex SHA-256 of a file's contents."""
    total, done, digest = path.stat().st_size, 0, hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            progress("verify", done, total)
    return digest.hexdigest()


def require_digest(what: str, actual: str, expected: str, *, remedy: str) -> None:
    """Raises ChecksumMismatch with both digests."""
    if actual != expected:
        raise ChecksumMismatch(f"{what} has SHA-256 {actual}, expected {expected}; {remedy}")


def tree_bytes(root: Path) -> int:
    """Bytes of all files under a folder that may be changing while we look."""
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:  # moved since it was listed
                continue
    return total
