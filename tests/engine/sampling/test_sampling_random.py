"""Philox against published vectors; keys that depend on (seed, choice, position) only."""

from __future__ import annotations

import numpy as np
import pytest

from engine.sampling.random_numbers import noise_keys, philox4x32

# Known answers of philox4x32-10 as published with Random123 (Salmon et al.).
VECTORS = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_philox_gives_the_published_answers(
    counter: list[int], key: list[int], expected: list[int]
) -> None:
    words = philox4x32(np.array([counter], np.uint64), np.array([key], np.uint64))
    assert words[0].tolist() == expected


def test_a_key_does_not_depend_on_the_rows_beside_it() -> None:
    together = noise_keys([1, 2**64 - 1, 3], [0, 1, 2], [5, 6, 70000])
    alone = [
        noise_keys([s], [c], [p])[0] for s, c, p in [(1, 0, 5), (2**64 - 1, 1, 6), (3, 2, 70000)]
    ]
    assert together.tolist() == alone


def test_seed_choice_and_position_each_change_both_words_of_the_key() -> None:
    keys = noise_keys([1, 2, 1, 1, 1 + 2**32], [0, 0, 1, 0, 0], [9, 9, 9, 10, 9])
    assert len(set((keys >> np.uint64(32)).tolist())) == 5
    assert len(set((keys & np.uint64(2**32 - 1)).tolist())) == 5
