"""Digests of KV blocks: equal everywhere, and different when a bit is."""

from __future__ import annotations

import threading

import pytest
import torch

from kernels.block_digest import block_digest
from kernels.reference.block_digest import block_digest as reference_digest
from kernels.reference.block_digest import digest_weights
from tests.kernels.kernel_sets import DTYPES, random

SHAPE = (7, 3, 2, 2, 9, 8)  # 18 or 36 words a slice: whole vectors and a rest


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_fast_digest_is_that_of_the_reference(dtype: torch.dtype) -> None:
    pool, ids = random(*SHAPE, dtype=dtype), [6, 0, 3, 3]
    digest = block_digest(pool, ids)
    assert digest.shape == (4, 3, 2, 2)
    assert torch.equal(digest, reference_digest(pool, torch.tensor(ids)))
    assert block_digest(pool, []).shape == (0, 3, 2, 2)


def test_the_digest_is_the_sum_of_words_times_weights() -> None:
    pool = random(*SHAPE, dtype=torch.float32)
    words = pool[5, 1, 0, 1].flatten().view(torch.int64).tolist()
    weights = digest_weights(len(words)).tolist()
    total = sum(word * weight for word, weight in zip(words, weights, strict=True))
    ours = int(block_digest(pool, [5])[0, 1, 0, 1])
    assert (ours - total) % 2**64 == 0


def test_every_single_bit_counts() -> None:
    pool = random(*SHAPE, dtype=torch.bfloat16)
    digest = block_digest(pool, [2])
    words = pool.view(torch.int64)
    generator = torch.Generator().manual_seed(3)
    for _ in range(64):
        bit = int(torch.randint(0, 64, (), generator=generator))
        at = tuple(int(torch.randint(0, n, (), generator=generator)) for n in words.shape[1:])
        words[(2, *at)] ^= 1 << bit if bit < 63 else -(2**63)
        changed = (block_digest(pool, [2]) != digest).nonzero().tolist()
        assert changed == [[0, at[0], at[1], at[2]]]
        words[(2, *at)] ^= 1 << bit if bit < 63 else -(2**63)


def test_weights_are_odd_distinct_and_the_same_for_every_length() -> None:
    weights = digest_weights(512)
    assert (weights & 1).all()
    assert len(set(weights.tolist())) == 512
    assert torch.equal(digest_weights(100), weights[:100])
    # The published first output of splitmix64 seeded with 0, made odd.
    assert int(weights[0]) % 2**64 == 0xE220A8397B1DCDAF | 1


def test_a_block_outside_of_the_pool_is_refused() -> None:
    with pytest.raises(IndexError, match="block 7 of a pool of 7"):
        block_digest(random(*SHAPE, dtype=torch.float32), [0, 7])


def test_digests_from_two_threads_do_not_meet() -> None:
    pool = random(40, 4, 2, 2, 16, 32, dtype=torch.float32)
    expected = block_digest(pool, range(40))
    wrong: list[int] = []

    def digest_often() -> None:
        for _ in range(30):
            if not torch.equal(block_digest(pool, range(40)), expected):
                wrong.append(1)

    threads = [threading.Thread(target=digest_often) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
