"""The digest of a weight file: remembered, and never believed of another content."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

from cluster.models.files.weights_digest import DigestCache


def test_a_digest_is_computed_once_and_again_after_a_change(tmp_path: Path) -> None:
    path, reads = tmp_path / "w", []
    path.write_bytes(b"one")
    cache = DigestCache(tmp_path / "digests", lambda *step: reads.append(step))
    assert cache.of_file(path) == cache.of_file(path) == hashlib.sha256(b"one").hexdigest()
    assert len(reads) == 1
    path.write_bytes(b"two")
    os.utime(path, ns=(1, 1))  # same size, another time
    assert cache.of_file(path) == hashlib.sha256(b"two").hexdigest()


def test_a_damaged_digest_record_is_computed_again(tmp_path: Path) -> None:
    path = tmp_path / "w"
    path.write_bytes(b"one")
    cache = DigestCache(tmp_path / "digests")
    expected = cache.of_file(path)
    next((tmp_path / "digests").iterdir()).write_text("{")
    assert cache.of_file(path) == expected


def test_records_hold_where_the_models_folder_is_copied_or_baked_into_an_image(
    tmp_path: Path,
) -> None:
    reads: list[tuple[object, ...]] = []
    home = tmp_path / "home"
    (home / "m").mkdir(parents=True)
    (home / "m" / "w").write_bytes(b"one")
    expected = DigestCache(home / "digests").of_file(home / "m" / "w")
    copy = shutil.copytree(home, tmp_path / "elsewhere")
    file = copy / "m" / "w"
    second_ns = file.stat().st_mtime_ns // 1_000_000_000 * 1_000_000_000
    os.utime(file, ns=(second_ns, second_ns))
    cache = DigestCache(copy / "digests", lambda *step: reads.append(step))
    assert cache.of_file(file) == expected
    assert reads == []


def test_a_file_written_later_within_the_second_is_read_again(tmp_path: Path) -> None:
    path, cache = tmp_path / "w", DigestCache(tmp_path / "digests")
    path.write_bytes(b"one")
    os.utime(path, ns=(5_000_000_000, 5_000_000_000))
    cache.of_file(path)
    path.write_bytes(b"two")
    os.utime(path, ns=(5_000_000_001, 5_000_000_001))
    assert cache.of_file(path) == hashlib.sha256(b"two").hexdigest()


def test_a_record_of_an_older_version_is_still_believed(tmp_path: Path) -> None:
    """It is named by the absolute path, and lies perhaps where nobody can write a new one."""
    path, digests = tmp_path / "w", tmp_path / "digests"
    path.write_bytes(b"one")
    place, stat = str(path.resolve()), path.stat()
    facts = {"path": place, "size": 3, "mtime_ns": stat.st_mtime_ns, "sha256": "a" * 64}
    digests.mkdir()
    name = hashlib.sha256(place.encode()).hexdigest()[:32]
    (digests / f"{name}.json").write_text(json.dumps(facts))
    assert DigestCache(digests).of_file(path) == "a" * 64
