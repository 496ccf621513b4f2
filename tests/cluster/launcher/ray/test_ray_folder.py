"""A Ray's folder goes with it, or with the next one's start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cluster.launcher.ray.ray_folder import RayFolder
from tests.cli.run_cli import ROOT, clean_environ

KILLED = """
import os, signal, sys
from pathlib import Path
from cluster.launcher.ray.ray_folder import RayFolder
folder = RayFolder.make(Path(sys.argv[1]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_folder_of_a_killed_process_is_removed_by_the_next_and_those_of_living_ones_stay(
    tmp_path: Path,
) -> None:
    living = RayFolder.make(tmp_path)
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env=clean_environ(), check=False)
    assert len(list(tmp_path.iterdir())) == 2
    another = RayFolder.make(tmp_path)
    assert set(tmp_path.iterdir()) == {living.path, another.path}
    for folder in (living, another, another):
        folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_others_keep_in_the_same_place_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "splitserve-ray-being-made").mkdir()
    (tmp_path / "something").mkdir()
    RayFolder.make(tmp_path).remove()
    assert len(list(tmp_path.iterdir())) == 2
