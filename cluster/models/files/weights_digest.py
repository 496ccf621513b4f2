"""SHA-256 of weight files, remembered in the cache so that a start does not read them twice.

A record is believed while the file's path, size and modification time (ns) are what they were.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from cluster.errors import BadCheckpoint
from cluster.models.files.disk import landing, sha256_of
from cluster.models.files.json_file import read_json_object
from cluster.models.files.progress import ByteProgress, silent


class DigestCache:
    """One small JSON file per weight file under `root`."""

    def __init__(self, root: Path, progress: ByteProgress = silent) -> None:
        self._root = root
        self._progress = progress

    def of(self, files: tuple[Path, ...]) -> str:
        """One digest for all: a single file's own, or the digest over sorted names and digests."""
        if len(files) == 1:
            return self.of_file(files[0])
        lines = sorted(f"{path.name}:{self.of_file(path)}\n" for path in files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def of_file(self, path: Path) -> str:
        """From the record when it still fits, else computed and recorded."""
        stat = path.stat()
        place = str(path.resolve())
        facts = {"path": place, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
        record = self._root / f"{hashlib.sha256(place.encode()).hexdigest()[:32]}.json"
        known = _read(record)
        if all(known.get(key) == value for key, value in facts.items()) and "sha256" in known:
            return str(known["sha256"])
        digest = sha256_of(path, self._progress)
        self._remember(record, {**facts, "sha256": digest})
        return digest

    def _remember(self, record: Path, facts: dict[str, object]) -> None:
        try:
            with landing(record) as file:
                file.write(json.dumps(facts).encode())
        except OSError:  # a cache that cannot be written only costs the next start some time
            return


def _read(record: Path) -> dict[str, object]:
    try:
        return read_json_object(record)
    except BadCheckpoint:  # an unreadable record is computed again
        return {}
