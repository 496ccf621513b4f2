"""Limits of containers, as files of the kernel."""

from __future__ import annotations

from pathlib import Path

import psutil

from cluster.process.cgroup import Cgroups
from cluster.process.free_memory import (
    container_bytes_left,
    free_memory_bytes,
    free_memory_share,
    whole_memory_bytes,
)


def group(folder: Path, limit: str, usage: int, *, inactive_file: int | None = None) -> None:
    """Of the second kind."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{usage}\n")
    if inactive_file is not None:
        (folder / "memory.stat").write_text(f"anon 300\ninactive_file {inactive_file}\n")


def member_of(root: Path, *lines: str) -> Cgroups:
    """A process that is told these lines of its groups."""
    membership = root / "self.cgroup"
    membership.write_text("".join(f"{line}\n" for line in lines))
    return Cgroups(root, membership)


def test_a_container_s_limit_counts_and_not_the_machine_s_memory(tmp_path: Path) -> None:
    group(tmp_path, "1000", 400)
    cgroups = member_of(tmp_path, "0::/")
    assert free_memory_bytes(cgroups) == 600
    assert whole_memory_bytes(cgroups) == 1000
    assert free_memory_share(cgroups) == 0.6


def test_limits_of_the_first_cgroups_count_too(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "memory.limit_in_bytes").write_text("5000\n")
    (folder / "memory.usage_in_bytes").write_text("6000\n")
    assert container_bytes_left(Cgroups(tmp_path)) == 0
    (folder / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 2500\n")
    assert container_bytes_left(Cgroups(tmp_path)) == 1500


def test_a_file_that_was_read_once_does_not_count_as_memory_in_use(tmp_path: Path) -> None:
    group(tmp_path, "1000", 900, inactive_file=600)
    assert container_bytes_left(Cgroups(tmp_path)) == 700
    group(tmp_path, "1000", 500, inactive_file=600)  # the two are not read at one moment
    assert container_bytes_left(Cgroups(tmp_path)) == 1000


def test_the_least_of_the_limits_around_a_process_counts(tmp_path: Path) -> None:
    group(tmp_path / "pod" / "container", "9000", 100)
    group(tmp_path / "pod", "1000", 700)
    group(tmp_path / "elsewhere", "10", 10)
    cgroups = member_of(tmp_path, "0::/pod/container")
    assert container_bytes_left(cgroups) == 300
    assert whole_memory_bytes(cgroups) == 1000


def test_a_container_that_is_told_its_path_outside_finds_its_limit_at_the_root(
    tmp_path: Path,
) -> None:
    group(tmp_path, "1000", 400)
    cgroups = member_of(tmp_path, "0::/../../docker/abc", "4:cpu,memory:/docker/abc")
    assert container_bytes_left(cgroups) == 600


def test_without_a_limit_the_machine_s_memory_counts(tmp_path: Path) -> None:
    group(tmp_path, "max", 400)
    assert container_bytes_left(Cgroups(tmp_path)) is None
    assert free_memory_bytes(Cgroups(tmp_path)) > psutil.virtual_memory().total // 100
    assert whole_memory_bytes(Cgroups(tmp_path)) == psutil.virtual_memory().total
