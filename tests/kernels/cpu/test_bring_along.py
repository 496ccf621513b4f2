"""What an image has brought along is used where there is no compiler, and only for its sources.

The sources here use no instruction that a CPU could lack.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kernels.cpu.native_sources as native
from kernels.cpu.bring_along import main
from kernels.cpu.levels import AVX2, AVX512, Level


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Of one function."""
    if not any(map(shutil.which, ("g++", "clang++"))):
        pytest.skip("no C++ compiler")
    folder = tmp_path / "native"
    folder.mkdir()
    (folder / "one.cpp").write_text('extern "C" int one() { return 1; }')
    return folder


def bring_along(sources: Path) -> list[Path]:
    """As the image's build does, in a process of its own."""
    command = [sys.executable, "-m", "kernels.cpu.bring_along", str(sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [Path(line) for line in done.stdout.splitlines()]


def test_every_kind_of_cpu_finds_its_library_without_a_compiler_and_writes_nothing(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bring_along(sources)
    assert sorted(made) == sorted((sources.parent / "built").iterdir())
    assert len(made) == 3  # AVX-512 with VNNI, and without, and AVX2
    monkeypatch.setattr(shutil, "which", lambda _: None)
    folder = sources.parent / "folder"
    kinds: list[tuple[Level, tuple[str, ...]]] = [
        (AVX512, AVX512.needed),
        (AVX512, (*AVX512.needed, *AVX2.needed, "avx512_vnni")),
        (AVX2, (*AVX2.needed, "avx512f", "avx512_vnni")),
    ]
    for level, flags in kinds:
        monkeypatch.setattr(native, "_cpu_flags", lambda flags=flags: frozenset(flags))
        library = native.load_sources(sources, folder)
        assert library.one() == 1 and library.level is level
    assert not folder.exists()


def test_other_sources_are_not_served_by_it(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bring_along(sources)
    monkeypatch.setattr(native, "_cpu_flags", lambda: frozenset(AVX512.needed))
    (sources / "one.cpp").write_text('extern "C" int one() { return 2; }')
    folder = sources.parent / "folder"
    assert native.load_sources(sources, folder).one() == 2
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(native.NativeUnavailable, match="no C\\+\\+ compiler"):
        native.load_sources(sources, folder)


def test_a_cpu_is_judged_before_what_was_brought_along(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its instructions would end the process."""
    bring_along(sources)
    monkeypatch.setattr(native, "_cpu_flags", lambda: frozenset({"avx2", "avx512f"}))
    with pytest.raises(native.NativeUnavailable, match="this CPU lacks fma, f16c"):
        native.load_sources(sources, sources.parent / "folder")


def test_the_build_asks_nothing_of_the_cpu_that_is_here(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_cpu_flags", lambda: frozenset())
    assert [path.suffix for path in native.bring_along(sources)] == [".so"] * 3


def test_where_no_cpu_has_these_instructions_nothing_is_compiled_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its compiler refuses the options."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["bring_along", str(tmp_path / "native")])
    main()
    said = capsys.readouterr()
    assert said.out == "" and "native: nothing for aarch64" in said.err
    assert not (tmp_path / "built").exists()
