from __future__ import annotations

from pathlib import Path

import psutil

from cluster.process.free_memory import container_bytes_left, free_memory_bytes


def test_a_container_s_limit_counts_and_not_the_machine_s_memory(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert free_memory_bytes(tmp_path) == 600


def test_limits_of_the_first_cgroups_count_too(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "memory.limit_in_bytes").write_text("5000\n")
    (folder / "memory.usage_in_bytes").write_text("6000\n")
    assert container_bytes_left(tmp_path) == 0


def test_without_a_limit_the_machine_s_memory_counts(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert container_bytes_left(tmp_path) is None
    assert free_memory_bytes(tmp_path) > psutil.virtual_memory().total // 100
