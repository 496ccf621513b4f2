"""In which files two images are not the same."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterator
from pathlib import Path


def differences(one: Path, other: Path) -> list[str]:
    """Paths that one of them lacks, or has with another content, mode or owner."""
    first, second = dict(_entries(one)), dict(_entries(other))
    lacking = set(first) ^ set(second)
    both = set(first) & set(second)
    changed = {path for path in both if first[path] != second[path]}
    changed |= {path for path in both - changed if _content_differs(one / path, other / path)}
    return sorted(lacking | changed)


def _entries(root: Path) -> Iterator[tuple[str, tuple[int, int, int]]]:
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            found = path.lstat()
            yield str(path.relative_to(root)), (found.st_mode, found.st_uid, int(found.st_mtime))


def _content_differs(one: Path, other: Path) -> bool:
    if one.is_symlink():
        return one.readlink() != other.readlink()
    return one.is_file() and not filecmp.cmp(one, other, shallow=False)
