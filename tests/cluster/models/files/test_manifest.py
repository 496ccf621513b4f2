"""The digests beside a model: believed where they still fit, never of what was written later."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.models.files import manifest
from cluster.models.files.manifest import (
    MANIFEST,
    StatedFile,
    believed_digest,
    read_manifest,
    stated_file,
    write_manifest,
)
from cluster.models.files.weights_digest import DigestCache

NS = 1_000_000_000
THEN_NS = 1_700_000_000 * NS + 123_456_789


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A weight file with its manifest."""
    path = tmp_path / "model" / "w.safetensors"
    path.parent.mkdir()
    path.write_bytes(b"one")
    os.utime(path, ns=(THEN_NS, THEN_NS))
    write_manifest(path.parent, {path.name: stated_file(path, digest_of)})
    return path


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "on_read_only_mount", lambda path: True)


def rewrite(path: Path, mtime_ns: int) -> None:
    path.write_bytes(b"two")
    os.utime(path, ns=(mtime_ns, mtime_ns))


def test_a_model_copied_with_its_times_is_not_read_again(file: Path, tmp_path: Path) -> None:
    reads: list[tuple[object, ...]] = []
    copy = shutil.copytree(file.parent, tmp_path / "elsewhere" / "model")
    cache = DigestCache(tmp_path / "other home" / "digests", lambda *step: reads.append(step))
    assert cache.of_file(copy / file.name) == digest_of(file)
    assert reads == []


def test_an_image_that_keeps_whole_seconds_is_not_read_again(file: Path, tmp_path: Path) -> None:
    os.utime(file, ns=(THEN_NS // NS * NS,) * 2)
    assert believed_digest(file) == digest_of(file)


@pytest.mark.parametrize("mtime_ns", [0, NS, THEN_NS - 5 * NS])
def test_times_that_were_set_back_are_believed_on_a_read_only_mount_alone(
    file: Path, mtime_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.utime(file, ns=(mtime_ns, mtime_ns))
    assert believed_digest(file) is None
    monkeypatch.setattr(manifest, "on_read_only_mount", lambda path: True)
    assert believed_digest(file) == digest_of(file)


@pytest.mark.parametrize("later_ns", [1, 500_000_000, NS, 3600 * NS])
def test_a_file_that_was_written_later_is_never_believed(
    file: Path, read_only: None, later_ns: int, tmp_path: Path
) -> None:
    rewrite(file, THEN_NS + later_ns)
    assert believed_digest(file) is None
    cache = DigestCache(tmp_path / "digests")
    assert cache.of_file(file) == hashlib.sha256(b"two").hexdigest()


def test_a_file_of_another_size_is_never_believed(file: Path, read_only: None) -> None:
    file.write_bytes(b"three")
    os.utime(file, ns=(THEN_NS, THEN_NS))
    assert believed_digest(file) is None


def test_what_the_hub_states_of_a_file_is_not_believed_of_one_that_is_here(
    file: Path, read_only: None
) -> None:
    write_manifest(file.parent, {file.name: StatedFile(size_bytes=3, sha256="a" * 64)})
    assert believed_digest(file) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: "{",
        lambda text: "[]",
        lambda text: '{"files": []}',
        lambda text: text.replace('"size": 3', '"size": true'),
        lambda text: text.replace('"sha256": "', '"sha256": "z'),
        lambda text: text.replace(str(THEN_NS), '"yesterday"'),
    ],
)
def test_a_damaged_manifest_says_nothing(file: Path, spoil: Callable[[str], str]) -> None:
    place = file.parent / MANIFEST
    assert read_manifest(file.parent)
    spoilt = spoil(place.read_text())
    assert spoilt != place.read_text()
    place.write_text(spoilt)
    assert read_manifest(file.parent) == {} and believed_digest(file) is None
