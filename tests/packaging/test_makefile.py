"""What `make` would do, by its own word: nothing is run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import once_more

ROOT = Path(__file__).parents[2]
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def steps_of(tmp_path: Path, *words: str, path: str | None = None) -> list[str]:
    """The commands, for a place where nothing is installed yet; `path`: where to look for tools."""
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make")
    done = subprocess.run(
        [make, "-n", f"VENV={tmp_path / 'venv'}", *words],
        cwd=ROOT,
        env={"PATH": path or os.environ["PATH"]},  # nothing of a make that runs the tests
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def installs(tmp_path: Path, *words: str) -> list[str]:
    """What pip is given for torch, and then for the rest."""
    found = [line for line in steps_of(tmp_path, "install", *words) if "pip install" in line]
    return [line.partition("pip install -q ")[2] for line in found]


def test_where_nobody_counts_the_cores_the_tests_run_in_one_process(tmp_path: Path) -> None:
    """macOS has no nproc."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("make", "sed"):
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"no {name}")
        (tools / name).symlink_to(found)
    steps = steps_of(tmp_path, "quick", path=str(tools))
    assert " -n 1 " in steps[-1]


def test_of_an_index_of_torch_s_own_torch_alone_is_taken(tmp_path: Path) -> None:
    torch, rest = installs(tmp_path, f"TORCH_INDEX={CPU_INDEX}")
    assert torch.startswith(f"--no-deps --index-url {CPU_INDEX} 'torch==")
    assert rest == "-c constraints.txt -e '.[worker,test,dev,bench]'"


def test_without_one_torch_and_what_it_needs_come_as_pinned(tmp_path: Path) -> None:
    torch, rest = installs(tmp_path, "WORKER=worker-cu12")
    assert torch.startswith("-c constraints.txt 'torch==")
    assert rest == "-c constraints.txt -e '.[worker-cu12,test,dev,bench]'"


def test_what_failed_once_is_asked_again_and_nothing_that_failed_in_a_run_before(
    tmp_path: Path,
) -> None:
    """pytest keeps the names of failed tests until they pass; one that was renamed never does."""
    forgotten, asked = steps_of(tmp_path, "test")[-2:]
    assert forgotten.startswith(f"rm -f {once_more.LAST_FAILED} ")
    assert asked.endswith("-m tests.once_more; }")


def test_two_cores_have_four_processes_of_tests(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nproc").write_text("#!/bin/sh\necho 2\n")
    (tools / "nproc").chmod(0o755)
    steps = steps_of(tmp_path, "quick", path=f"{tools}{os.pathsep}{os.environ['PATH']}")
    assert " -n 4 " in steps[-1]
