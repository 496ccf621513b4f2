"""Which level of instructions a CPU has, and what is compiled for each."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernels.cpu.native_sources as native
from kernels.cpu.levels import AVX2, AVX512, LEVELS, Level, levels_of

ZEN_3 = frozenset({"avx", "avx2", "fma", "f16c", "bmi2"})
ICE_LAKE = ZEN_3 | set(AVX512.needed) - {"avx512_bf16"} | {"avx512_vnni"}
SAPPHIRE_RAPIDS = ICE_LAKE | {"avx512_bf16"}


@pytest.mark.parametrize(
    ("features", "levels"),
    [
        (frozenset({"sse4_2", "avx"}), []),
        (ZEN_3 - {"f16c"}, []),
        (ZEN_3, [AVX2]),
        (ICE_LAKE, [AVX2]),
        (SAPPHIRE_RAPIDS, [AVX512, AVX2]),
    ],
    ids=["none", "half", "Zen 3", "Ice Lake", "Sapphire Rapids"],
)
def test_a_cpu_has_the_levels_of_which_it_lacks_nothing(
    features: frozenset[str], levels: list[Level]
) -> None:
    assert levels_of(features) == levels


def test_what_some_kernels_need_is_compiled_where_it_is_there() -> None:
    with_it, without = AVX512.options_for(SAPPHIRE_RAPIDS), AVX512.options_for(AVX512.needed)
    assert [*without, "-mavx512vnni"] == list(with_it)
    assert AVX512.variants() == [without, with_it]
    assert AVX2.variants() == [AVX2.options_for(SAPPHIRE_RAPIDS)] == [AVX2.options]


def test_no_level_is_compiled_with_what_it_does_not_ask_of_the_cpu() -> None:
    plain = {"-mfma"}  # which any CPU with AVX-512 has
    for level in LEVELS:
        asked = {f"-m{feature.replace('_', '')}" for feature in level.needed}
        assert {option for option in level.options if option.startswith("-m")} <= asked | plain


def test_a_level_that_was_asked_for_is_refused_where_the_cpu_lacks_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(native, "_cpu_flags", lambda: ICE_LAKE)
    with pytest.raises(native.NativeUnavailable, match="this CPU lacks avx512_bf16$"):
        native.load_sources(tmp_path, tmp_path, level=AVX512)


def test_each_level_has_a_library_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On one machine: tests and benchmarks load both."""
    sources, folder = tmp_path / "native", tmp_path / "folder"
    sources.mkdir()
    (sources / "level.cpp").write_text(
        """
        #ifdef __AVX512BF16__
        extern "C" int bits() { return 512; }
        #else
        extern "C" int bits() { return 256; }
        #endif
        """
    )
    monkeypatch.setattr(native, "_cpu_flags", lambda: SAPPHIRE_RAPIDS)
    for level, bits in ((AVX2, 256), (AVX512, 512), (None, 512)):
        library = native.load_sources(sources, folder, level=level)
        assert library.bits() == bits and library.level is (level or AVX512)
    assert len(list(folder.glob("*.so"))) == 2
