"""The digest of a weight file: remembered, and never believed of another content."""

from __future__ import annotations

import hashlib
import os
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
