"""Cards that the driver lists and that have no files, as on WSL 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.supervisor.devices import NvidiaHost, visible_gpus, why_unusable

LISTED = """GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-5f2c)
  MIG 1g.10gb Device 0: (UUID: MIG-11aa)
GPU 1: NVIDIA GeForce RTX 4090 (UUID: GPU-77d0)
"""


def host_whose_driver_says(folder: Path, words: str, exit_code: int = 0) -> NvidiaHost:
    said = folder / "said"
    said.write_text(words)
    return NvidiaHost(folder, list_command=("sh", "-c", f"cat {said}; exit {exit_code}"))


def test_cards_without_files_are_those_that_the_driver_lists(tmp_path: Path) -> None:
    host = host_whose_driver_says(tmp_path, LISTED)
    assert visible_gpus({}, host) == ("0", "1")
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "1"}, host) == ("1",)
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}, host) == ()


def test_the_driver_is_not_asked_where_cards_have_files(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    assert visible_gpus({}, host_whose_driver_says(tmp_path, LISTED)) == ("0",)


@pytest.mark.parametrize(
    ("words", "exit_code"), [(LISTED, 9), ("No devices were found\n", 0), ("", 0)]
)
def test_a_driver_that_finds_none_or_cannot_be_reached_makes_no_gpus(
    tmp_path: Path, words: str, exit_code: int
) -> None:
    host = host_whose_driver_says(tmp_path, words, exit_code)
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "0,1"}, host) == ()


def test_where_nothing_lists_cards_there_are_none(tmp_path: Path) -> None:
    assert NvidiaHost(tmp_path, list_command=(str(tmp_path / "absent"), "-L")).num_cards() == 0


def test_a_driver_whose_library_is_not_found_is_told_from_one_that_is_too_old(
    tmp_path: Path,
) -> None:
    """A node mounts it where no loader looks, or not at all."""
    version = tmp_path / "version"
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Release\n")
    found = why_unusable("13.0", NvidiaHost(tmp_path, version, cuda_library="libabsent.so.1"))
    assert "libabsent.so.1 of NVIDIA's driver cannot be loaded" in found.cause
    assert "LD_LIBRARY_PATH" in found.remedy and "runtimeClassName" in found.remedy
    found = why_unusable("13.0", NvidiaHost(tmp_path, version, cuda_library="libc.so.6"))
    assert "580.65.06" in found.cause and found.remedy == "see what nvidia-smi says"
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Release\n")
    found = why_unusable("13.0", NvidiaHost(tmp_path, version, cuda_library="libabsent.so.1"))
    assert "needs NVIDIA's driver 580" in found.cause, "which no library would help"
