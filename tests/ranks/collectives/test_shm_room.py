"""What is said of /dev/shm where NCCL does not come up."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from ranks.collectives.shm_room import in_little_room


def test_a_containers_64_mb_are_told_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(total=64 << 20))
    words = in_little_room(tmp_path)
    assert "64 MiB" in words and "--shm-size 1g" in words


def test_where_there_is_room_or_nobody_knows_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert in_little_room(tmp_path / "absent") == ""
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(total=8 << 30))
    assert in_little_room(tmp_path) == ""
