"""A folder goes with its process, or with the next one's start."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from cluster.process.owned_folder import OwnedFolder
from tests.cli.run_cli import ROOT, clean_environ

KILLED = """
import os, signal, sys
from pathlib import Path
from cluster.process.owned_folder import OwnedFolder
folder = OwnedFolder.make("test-", Path(sys.argv[1]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_folder_of_a_killed_process_is_removed_by_the_next_and_those_of_living_ones_stay(
    tmp_path: Path,
) -> None:
    living = OwnedFolder.make("test-", tmp_path)
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env=clean_environ(), check=False)
    assert len(list(tmp_path.iterdir())) == 2
    another = OwnedFolder.make("test-", tmp_path)
    assert set(tmp_path.iterdir()) == {living.path, another.path}
    for folder in (living, another, another):
        folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_others_keep_in_the_same_place_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "test-of-another").mkdir()
    (tmp_path / "something").mkdir()
    OwnedFolder.make("test-", tmp_path).remove()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_is_locked_before_others_can_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is being made while another process starts is not taken for one that was left."""
    seen: list[Path] = []

    def lock(file: IO[bytes], how: int) -> None:
        seen.extend(tmp_path.glob("test-*"))

    monkeypatch.setattr(fcntl, "flock", lock)
    folder = OwnedFolder.make("test-", tmp_path)
    assert seen == []
    assert list(tmp_path.glob("test-*")) == [folder.path]
    folder.remove()
