"""What a look at the folder of adapters tells, where storage does not always say so."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.adapter_files import save_adapter
from tests.cluster.models.adapters.test_files import CONFIG, GOOD
from worker.adapters.shelf_scan import scan


def test_the_watch_sees_whole_folders_with_good_names(tmp_path: Path) -> None:
    save_adapter(tmp_path / "good", CONFIG)
    save_adapter(tmp_path / ".hidden", CONFIG)
    save_adapter(tmp_path / ("x" * 97), CONFIG)
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "adapter_config.json").write_text(json.dumps(GOOD))
    before = scan(tmp_path)
    assert list(before) == ["good"]
    save_adapter(tmp_path / "good", CONFIG, rank=16)
    assert scan(tmp_path)["good"] != before["good"]


def test_an_inode_that_a_mount_makes_up_is_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_adapter(tmp_path / "a", CONFIG)
    before, inodes = scan(tmp_path), count(10**9)
    stat: Callable[..., os.stat_result] = os.stat

    def made_up(path: Any, *args: Any, **options: Any) -> os.stat_result:
        found = stat(path, *args, **options)
        times = {name: getattr(found, name) for name in ("st_mtime_ns", "st_ctime_ns")}
        return os.stat_result((found[0], next(inodes), *found[2:]), times)

    monkeypatch.setattr(os, "stat", made_up)
    assert scan(tmp_path) == before


def failing(monkeypatch: pytest.MonkeyPatch, folder: Path, number: int) -> None:
    """Each question about what is in the folder."""
    stat: Callable[..., os.stat_result] = os.stat

    def failed(path: Any, *args: Any, **options: Any) -> os.stat_result:
        if isinstance(path, (str, Path)) and Path(path).parent == folder:
            raise OSError(number, os.strerror(number))
        return stat(path, *args, **options)

    monkeypatch.setattr(os, "stat", failed)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EACCES])
def test_an_error_of_storage_says_nothing_of_an_adapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    for name in ("a", "b"):
        save_adapter(tmp_path / name, CONFIG)
    failing(monkeypatch, tmp_path / "a", number)
    found = scan(tmp_path)
    assert list(found) == ["a", "b"]
    assert found["a"] is None and found["b"] is not None


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOTDIR])
def test_one_whose_files_are_not_there_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    for name in ("a", "b"):
        save_adapter(tmp_path / name, CONFIG)
    failing(monkeypatch, tmp_path / "a", number)
    assert list(scan(tmp_path)) == ["b"]


def test_a_link_that_leads_nowhere_hides_no_adapter(tmp_path: Path) -> None:
    save_adapter(tmp_path / "b", CONFIG)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    assert list(scan(tmp_path)) == ["b"]
