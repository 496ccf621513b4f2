"""The library is built once, and its absence is a line of log, not a failure."""

from __future__ import annotations

import logging
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import kernels.cpu.native_library as native
import kernels.cpu.native_sources as sources
from cluster.home import kernels_folder
from kernels.dispatch.block_digest import block_digest
from kernels.dispatch.kernel_sets import TORCH_CPU, kernels_for
from tests.kernels.kernel_sets import cpu_set, random


@pytest.fixture
def unbuilt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine that has not built the library yet."""
    cpu_set("native")
    monkeypatch.setattr(native, "_opened", None)
    return tmp_path / "kernels"


def test_a_built_library_is_not_built_again(unbuilt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(kernels_folder(), unbuilt, ignore=shutil.ignore_patterns("triton"))
    monkeypatch.setattr(sources, "_build", lambda *_: pytest.fail("built again"))
    assert native.native_library() is None
    assert kernels_for(torch.device("cpu"), unbuilt).name == sources.own_levels()[0].name
    opened = native.native_library()
    assert opened is not None and opened.splitserve_gated_mul


def test_without_a_compiler_torch_does_the_work_and_the_log_says_so(
    unbuilt: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert kernels_for(torch.device("cpu"), unbuilt) is TORCH_CPU
    assert [record.message for record in caplog.records] == [
        "CPU kernels run on torch, several times slower: no C++ compiler is installed "
        "(g++ 10 or later, or clang++ 11)"
    ]
    pool = random(3, 1, 2, 1, 4, 8, dtype=torch.float32)
    assert block_digest(pool, [1]).shape == (1, 1, 2, 1)


def test_a_failing_compiler_is_named_with_its_last_words(
    unbuilt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = replace(sources.own_levels()[0], options=("-no-such-flag",))
    with pytest.raises(sources.NativeUnavailable, match=r"g\+\+ failed: .*no-such-flag"):
        native.load_library(unbuilt, level=broken)
    assert [path.suffix for path in unbuilt.iterdir()] == [".lock"]


def test_a_cpu_without_the_instructions_is_named(
    unbuilt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_cpu_flags", lambda: frozenset({"avx512f", "avx2"}))
    with pytest.raises(sources.NativeUnavailable, match="this CPU lacks fma, f16c$"):
        native.load_library(unbuilt)


def test_a_folder_that_cannot_be_written_is_named(unbuilt: Path) -> None:
    blocked = unbuilt.with_name("file")
    blocked.write_text("not a folder")
    with pytest.raises(sources.NativeUnavailable, match="file/kernels cannot be written"):
        native.load_library(blocked / "kernels")


def test_two_callers_at_once_get_right_answers() -> None:
    """The helpers serve one caller; the other works alone."""
    kernels = cpu_set("native")
    linear = kernels.pack_linear(random(640, 64, dtype=torch.float32))
    x = random(64, 64, dtype=torch.float32, seed=1)
    expected, wrong = linear(x), []

    def multiply_often() -> None:
        wrong.extend(i for i in range(100) if not torch.equal(linear(x), expected))

    threads = [threading.Thread(target=multiply_often) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
