"""Commits of a revision that moves, beside each other: whoever reads one goes on undisturbed.

    main/                    the commit that was fetched first
    main/.commits/<commit>/  those that `main` named later
    main/.now                which of them is read; where it is not, the first

The one before stays until the next is fetched: processes may be loading it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from cluster.models.files.disk import landing

COMPLETE = ".complete"
"""Holds the commit; written last."""
_COMMITS, _NOW = ".commits", ".now"
_COMMIT = re.compile(r"[0-9a-f]{40,64}")


def current_folder(revision: Path) -> Path:
    """Where the commit lies that is read now, whole or not."""
    try:
        commit = (revision / _NOW).read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return revision
    return _folder_of(revision, commit) if is_commit(commit) else revision


def complete_commit(folder: Path) -> str | None:
    """The commit that lies there whole; None where none does."""
    try:
        return (folder / COMPLETE).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_commit(text: str) -> bool:
    """Whether it may be the name of a folder."""
    return _COMMIT.fullmatch(text) is not None


def folder_beside(revision: Path, commit: str) -> Path:
    """For another commit than the one that is read, once former ones but that have gone. Nothing in
    it is seen by others before `switch`."""
    folder, now = _folder_of(revision, commit), current_folder(revision)
    _drop_former(revision, {folder, now})
    return folder


def switch(revision: Path, commit: str) -> None:
    """From now on the revision is read there; in one step."""
    with landing(revision / _NOW) as file:
        file.write(commit.encode())


def take_along(now: Path, folder: Path, names: Collection[str]) -> set[str]:
    """Those files that both commits have and that are now in both folders without room of their
    own: where the disk can do that."""
    for name in names:
        with suppress(OSError):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(now / name, folder / name)
    return {name for name in names if _is_one(now / name, folder / name)}


def _is_one(path: Path, other: Path) -> bool:
    return other.exists() and path.samefile(other)


def _folder_of(revision: Path, commit: str) -> Path:
    return revision / _COMMITS / commit


def _drop_former(revision: Path, kept: set[Path]) -> None:
    commits = revision / _COMMITS
    for folder in commits.iterdir() if commits.is_dir() else ():
        if folder not in kept:
            shutil.rmtree(folder, ignore_errors=True)
    if revision not in kept and (revision / COMPLETE).exists():
        (revision / COMPLETE).unlink()
        for path in revision.iterdir():
            if path.is_file() and path.name != _NOW:
                path.unlink()
