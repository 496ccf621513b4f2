"""What native code is compiled for: levels of a CPU's vector instructions, the best first.

The sources are the same and tell levels apart by what the compiler defines (`__AVX512BF16__`).
Features have the names of /proc/cpuinfo.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import combinations
from typing import Final

_COMMON: Final = ("-O3", "-std=c++17", "-fPIC", "-pthread")
_AVX512_FEATURES: Final = (
    *("avx512f", "avx512bw", "avx512vl"),
    *("avx512dq", "avx512vbmi", "avx512_bf16"),
)


@dataclass(frozen=True, slots=True)
class Level:
    """`name` is that of the kernel set, `needed` the features without which nothing of it runs.
    `optional` are (feature, option) that some kernels need: they are left out without."""

    name: str
    needed: tuple[str, ...]
    options: tuple[str, ...]
    optional: tuple[tuple[str, str], ...] = ()

    def lacking(self, present: Collection[str]) -> list[str]:
        """What a CPU with these features has not of what is needed."""
        return [feature for feature in self.needed if feature not in present]

    def options_for(self, present: Collection[str]) -> tuple[str, ...]:
        """Of the compiler, for a CPU with these features, which lacks nothing that is needed."""
        chosen = (option for feature, option in self.optional if feature in present)
        return (*self.options, *chosen)

    def variants(self) -> list[tuple[str, ...]]:
        """Options for every kind of CPU that has this level."""
        features = [feature for feature, _ in self.optional]
        return [
            self.options_for(chosen)
            for count in range(len(features) + 1)
            for chosen in combinations(features, count)
        ]


AVX512: Final = Level(
    name="avx512",
    needed=_AVX512_FEATURES,
    options=(*_COMMON, "-mfma", *(f"-m{name.replace('_', '')}" for name in _AVX512_FEATURES)),
    optional=(("avx512_vnni", "-mavx512vnni"),),
)
AVX2: Final = Level(
    name="avx2",
    needed=("avx2", "fma", "f16c"),
    options=(*_COMMON, "-mavx2", "-mfma", "-mf16c", "-ffp-contract=off"),
)
"""Every 512-bit operation as two halves. Sums are contracted where the sources say so alone."""
LEVELS: Final = (AVX512, AVX2)


def levels_of(present: Collection[str]) -> list[Level]:
    """Of a CPU with these features, the best first."""
    return [level for level in LEVELS if not level.lacking(present)]
