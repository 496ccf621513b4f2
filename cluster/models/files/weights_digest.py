"""SHA-256 of weight files, remembered in the cache so that a start does not read them twice.

Believed is, in this order, the manifest beside the file (`manifest.py`), then the cache's own
record while the file's place, size and modification time are what they were. A place under the
models folder is named from there, so that records hold where that folder is copied or mounted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from cluster.errors import BadCheckpoint
from cluster.models.files.disk import landing, sha256_of
from cluster.models.files.json_file import read_json_object
from cluster.models.files.manifest import believed_digest, is_same_time
from cluster.models.files.progress import ByteProgress, silent


class DigestCache:
    """One small JSON file per weight file under `root`, a folder of the models folder."""

    def __init__(self, root: Path, progress: ByteProgress = silent) -> None:
        self._root = root
        self._progress = progress

    def of(self, files: tuple[Path, ...]) -> str:
        """One digest for all."""
        return digest_of_all({path.name: self.of_file(path) for path in files})

    def of_file(self, path: Path) -> str:
        """From the manifest or the record when it still fits, else computed and recorded."""
        believed = believed_digest(path)
        if believed is not None:
            return believed
        stat, places = path.stat(), self._places(path)
        for place in places:
            known = _read(self._record(place))
            if _fits(known, place, stat):
                return str(known["sha256"])
        facts = {"path": places[0], "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
        digest = sha256_of(path, self._progress)
        self._remember(self._record(places[0]), {**facts, "sha256": digest})
        return digest

    def _places(self, path: Path) -> tuple[str, ...]:
        """As it is recorded, then as older versions did."""
        place, home = path.resolve(), self._root.resolve().parent
        if place.is_relative_to(home):
            return place.relative_to(home).as_posix(), str(place)
        return (str(place),)

    def _record(self, place: str) -> Path:
        return self._root / f"{hashlib.sha256(place.encode()).hexdigest()[:32]}.json"

    def _remember(self, record: Path, facts: dict[str, object]) -> None:
        try:
            with landing(record) as file:
                file.write(json.dumps(facts).encode())
        except OSError:  # a cache that cannot be written only costs the next start some time
            return


def digest_of_all(digests: Mapping[str, str]) -> str:
    """From each file's own by its name: a single one's, or the digest over sorted lines."""
    if len(digests) == 1:
        return next(iter(digests.values()))
    lines = sorted(f"{name}:{digest}\n" for name, digest in digests.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _fits(known: dict[str, object], place: str, stat: os.stat_result) -> bool:
    then = known.get("mtime_ns")
    if known.get("path") != place or known.get("size") != stat.st_size or "sha256" not in known:
        return False
    return isinstance(then, int) and is_same_time(stat.st_mtime_ns, then)


def _read(record: Path) -> dict[str, object]:
    try:
        return read_json_object(record)
    except BadCheckpoint:  # an unreadable record is computed again
        return {}
