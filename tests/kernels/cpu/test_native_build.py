"""Sources are compiled side by side and once, and a failure leaves nothing behind."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernels.cpu.native_build import BuildFailed, build
from kernels.cpu.team import TEAM

FLAGS = ("-fPIC",)


@pytest.fixture
def compiler(tmp_path: Path) -> Path:
    """The real one, which notes each call."""
    real = shutil.which("g++") or shutil.which("clang++")
    if real is None:
        pytest.skip("no C++ compiler")
    script = tmp_path / "compiler"
    script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexec {real} "$@"\n')
    script.chmod(0o755)
    return script


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    """Two functions, one of which calls the other."""
    written = [tmp_path / "one.cpp", tmp_path / "two.cpp"]
    written[0].write_text('extern "C" int one() { return 1; }')
    written[1].write_text('extern "C" int one(); extern "C" int two() { return one() + one(); }')
    return written


def what_is_left(folder: Path) -> list[str]:
    """Names, but for the lock: it stays."""
    return [path.name for path in folder.iterdir() if path.suffix != ".lock"]


def test_callers_at_once_get_one_library(compiler: Path, sources: list[Path]) -> None:
    target = compiler.parent / "made" / "library.so"
    callers = [
        threading.Thread(target=build, args=(str(compiler), FLAGS, sources, target))
        for _ in range(3)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert ctypes.CDLL(str(target)).two() == 2
    calls = (compiler.parent / "calls").read_text().splitlines()
    assert len(calls) == 3  # two sources and the library
    assert what_is_left(target.parent) == ["library.so"]


def test_on_a_machine_of_many_cores_four_compilers_run_at_once(
    compiler: Path, sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def noting(max_workers: int) -> ThreadPoolExecutor:
        asked.append(max_workers)
        return ThreadPoolExecutor(max_workers)

    monkeypatch.setattr("kernels.cpu.native_build.ThreadPoolExecutor", noting)
    for num_cores in (64, 2):
        monkeypatch.setattr(TEAM, "num_threads", num_cores)
        build(str(compiler), FLAGS, sources, tmp_path / f"made-{num_cores}" / "library.so")
    assert asked == [4, 2]


def test_a_wrong_source_is_named_and_leaves_nothing(compiler: Path, sources: list[Path]) -> None:
    sources[1].write_text("int two( {")
    target = compiler.parent / "made" / "library.so"
    with pytest.raises(BuildFailed, match=r"compiler failed: .*error"):
        build(str(compiler), FLAGS, sources, target)
    assert what_is_left(target.parent) == []


def test_a_home_on_nfs_where_only_files_open_for_writing_can_be_locked_holds_the_library(
    compiler: Path, sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock

    def flock_of_nfs(descriptor: int, operation: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock_of_nfs)
    target = tmp_path / "made" / "library.so"
    build(str(compiler), FLAGS, sources, target)
    assert ctypes.CDLL(str(target)).two() == 2


def test_a_build_that_was_killed_goes_on_where_it_was(
    compiler: Path, sources: list[Path], tmp_path: Path
) -> None:
    target = tmp_path / "made" / "library.so"
    left = target.with_suffix(".objects")
    left.mkdir(parents=True)
    build_one = [str(compiler), *FLAGS, "-c", str(sources[0]), "-o", str(left / "one.o")]
    subprocess.run(build_one, check=True)
    (left / "two.part.o").write_bytes(b"half")
    told: list[float] = []
    build(str(compiler), FLAGS, sources, target, told.append)
    assert ctypes.CDLL(str(target)).two() == 2
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [("one.cpp" in call, "two.cpp" in call) for call in calls[1:]] == [
        (False, True),
        (False, False),
    ]
    assert told[-1] == 1.0


def test_who_waits_for_another_s_build_says_that_it_does(
    compiler: Path, sources: list[Path], tmp_path: Path
) -> None:
    target = tmp_path / "made" / "library.so"
    target.parent.mkdir()
    descriptor = os.open(target.with_suffix(".lock"), os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    told: list[float] = []

    def hear(fraction: float) -> None:
        if not told:
            os.close(descriptor)  # the other is done
        told.append(fraction)

    build(str(compiler), FLAGS, sources, target, hear)
    assert told[0] == 0.0 and told[-1] == 1.0


def test_how_far_it_is_is_told_while_one_file_takes_long(
    compiler: Path, sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who starts an engine takes silence for its end."""
    monkeypatch.setattr("kernels.cpu.native_build._REPORT_S", 0.01)
    go_on, told = tmp_path / "go-on", list[float]()
    waits = f"until test -e {go_on}; do sleep 0.01; done"
    compiler.write_text(
        compiler.read_text().replace("exec", f"case $* in *one.cpp*) {waits};; esac\nexec")
    )

    def note(done: float) -> None:
        told.append(done)
        if told.count(0.5) == 3:
            go_on.touch()

    build(str(compiler), FLAGS, sources, tmp_path / "made" / "library.so", note)
    assert told == sorted(told) and told.count(0.5) >= 3 and told[-1] == 1.0


def test_how_far_it_is_is_told_after_a_failure_until_the_others_are_done(
    compiler: Path, sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that is under way is waited for."""
    monkeypatch.setattr("kernels.cpu.native_build._REPORT_S", 0.01)
    monkeypatch.setattr(TEAM, "num_threads", 2)
    begun, failed, go_on = (tmp_path / name for name in ("begun", "failed", "go-on"))
    waits = f"touch {begun}; until test -e {go_on}; do sleep 0.01; done"
    fails = f"until test -e {begun}; do sleep 0.01; done; touch {failed}; exit 1"
    cases = f"case $* in *one.cpp*) {waits};; *two.cpp*) {fails};; esac"
    compiler.write_text(compiler.read_text().replace("exec", f"{cases}\nexec"))
    told_since = list[float]()

    def note(done: float) -> None:
        if failed.exists():
            told_since.append(done)
        if len(told_since) == 5:
            go_on.touch()

    with pytest.raises(BuildFailed):
        build(str(compiler), FLAGS, sources, tmp_path / "made" / "library.so", note)
    assert len(told_since) >= 5
