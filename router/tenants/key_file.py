"""The file of API keys: JSON, for the router to read and for `splitserve keys` to change.

It is replaced as a whole: a reader never meets a half of it. Only its owner may read it.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from cluster.errors import ConfigError
from router.tenants.api_key import KeyRecord

MAX_FILE_BYTES = 64 * 1024 * 1024


class KeyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole document."""

    keys: tuple[KeyRecord, ...]


def read_keys(path: Path) -> Mapping[str, KeyRecord]:
    """By id, as they stand in the file. Raises ConfigError with the file and what is wrong."""
    try:
        with path.open("rb") as file:
            packed = file.read(MAX_FILE_BYTES)
        return _checked(msgspec.json.decode(packed, type=KeyFile).keys)
    except FileNotFoundError as cause:
        raise ConfigError(
            f"{path} is not there; make it with: splitserve keys create TENANT --file {path}",
            param="api_keys",
        ) from cause
    except (OSError, msgspec.DecodeError, ValueError) as cause:
        raise ConfigError(
            f"{path} cannot be read as a file of API keys: {cause}", param="api_keys"
        ) from cause


@contextmanager
def changed_keys(path: Path) -> Iterator[dict[str, KeyRecord]]:
    """The keys by id, none where there is no file yet; what they are at the end is written. One
    process at a time. Raises ConfigError."""
    with _locked(path.parent):
        before = read_keys(path) if path.exists() else {}
        keys = dict(before)
        yield keys
        if keys != before:
            _write(path, KeyFile(tuple(keys.values())))


def _checked(records: Iterable[KeyRecord]) -> dict[str, KeyRecord]:
    """Raises ValueError."""
    keys: dict[str, KeyRecord] = {}
    for record in records:
        if keys.setdefault(record.id, record) is not record:
            raise ValueError(f"two keys have the id {record.id!r}")
        if not record.tenant:
            raise ValueError(f"key {record.id!r} has no tenant")
        if (fault := record.fault) is not None:
            raise ValueError(f"key {record.id!r} has {fault}")
    return keys


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as cause:
        raise ConfigError(f"{folder} is no folder for keys: {cause.strerror}") from cause
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, content: KeyFile) -> None:
    packed = msgspec.json.format(msgspec.json.encode(content), indent=2)
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(packed + b"\n")
                file.flush()
                os.fsync(descriptor)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as cause:
        raise ConfigError(f"{path} cannot be written: {cause.strerror}") from cause
