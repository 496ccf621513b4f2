"""Keys of noise that depend on (seed, choice, position) only: not on the batch, step or worker.

Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
Other keys, or other noise of them, are other draws: raise `DRAWS_VERSION` (cluster/sampling.py).
A counter goes through ten rounds of two 32 x 32 -> 64 bit products; the key moves on every round.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_Words = npt.NDArray[np.uint64]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_ROUNDS = 10


def philox4x32(counter: _Words, key: _Words) -> _Words:
    """`counter` [num, 4] and `key` [num, 2] of 32-bit words in uint64 -> random words [num, 4]."""
    c0, c1, c2, c3 = counter.T
    k0, k1 = key.T
    for _ in range(_ROUNDS):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (second >> _SHIFT) ^ c1 ^ k0,
            second & _LOW,
            (first >> _SHIFT) ^ c3 ^ k1,
            first & _LOW,
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) & _LOW, (k1 + _KEY_STEPS[1]) & _LOW
    return np.stack((c0, c1, c2, c3), axis=1)


def noise_keys(
    seeds: Sequence[int], choices: Sequence[int], positions: Sequence[int]
) -> npt.NDArray[np.uint64]:
    """One key per row, of 64 bits. Seeds are 64-bit; all lists have one length."""
    seed_words = np.array(seeds, dtype=np.uint64)
    key = np.stack((seed_words & _LOW, seed_words >> _SHIFT), axis=1)
    counter = np.zeros((len(seeds), 4), dtype=np.uint64)
    counter[:, 0] = positions
    counter[:, 1] = choices
    words = philox4x32(counter, key)
    keys: npt.NDArray[np.uint64] = words[:, 0] | words[:, 1] << _SHIFT
    return keys
