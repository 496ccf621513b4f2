"""What lies in the folder of adapters, as far as a look without reading tells."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from cluster.adapter import MAX_ADAPTERS, check_name
from cluster.errors import InvalidRequest
from cluster.models.adapters.files import SETTINGS, WEIGHTS

Signature = tuple[tuple[int, int, int], ...]
"""Of both files: size, times of the last change of contents and of status in ns. Another one: other
contents, maybe; see SteadySignatures. Without the inode: mounts of object stores make up another
one now and then."""
_MOST_ENTRIES = 16 * MAX_ADAPTERS
_NOT_THERE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP))
"""All other errors are of storage, and may pass."""


def signature_of(folder: Path) -> Signature | None:
    """None where one of the files is not there (yet). Raises OSError where that cannot be told."""
    try:
        stats = [os.stat(folder / name) for name in (SETTINGS, WEIGHTS)]
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None
        raise
    return tuple((stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for stat in stats)


def contents_of(signature: Signature) -> tuple[tuple[int, int], ...]:
    """All but the times of status."""
    return tuple((num_bytes, changed_ns) for num_bytes, changed_ns, _ in signature)


def scan(root: Path) -> dict[str, Signature | None]:
    """By name, the folders below the root that have both files, in the order of their names; None
    of one that cannot be looked at now. Raises OSError where the root itself cannot be read:
    nothing is known then."""
    names = sorted(entry.name for entry in os.scandir(root) if _may_be_folder(entry))
    found: dict[str, Signature | None] = {}
    for name in names[:_MOST_ENTRIES]:
        if not _is_name(name):
            continue
        try:
            signature = signature_of(root / name)
        except OSError:
            found[name] = None
        else:
            if signature is not None:
                found[name] = signature
    return found


def _may_be_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a look at its files says what it is
        return True


def _is_name(name: str) -> bool:
    try:
        check_name(name)
    except InvalidRequest:
        return False
    return True
