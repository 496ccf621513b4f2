"""Digests of KV blocks: equal everywhere, and different when a bit is."""

from __future__ import annotations

import threading

import pytest
import torch

import kernels.dispatch.block_digest
from kernels.dispatch.block_digest import block_digest
from kernels.reference.block_digest import block_digest as reference_digest
from kernels.reference.block_digest import digest_weights
from tests.kernels.kernel_sets import CPU_SETS, DTYPES, native_library_of, random

NUM_WORDS = 256  # of a slice: 16 rows of 64 bfloat16
BITS = torch.tensor([1 << bit for bit in range(63)] + [-(2**63)])
FIRST_WEIGHTS = [204281311, 2737349671, 396904895, 1610350267]
SHAPE = (7, 3, 2, 2, 9, 8)  # 18 or 36 words a slice: whole vectors and a rest


def unsigned(halves: torch.Tensor) -> list[int]:
    return [half % 2**32 for half in halves.tolist()]


@pytest.fixture(params=CPU_SETS)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    library = None if request.param == "torch" else native_library_of(request.param)
    monkeypatch.setattr(kernels.dispatch.block_digest, "native_library", lambda: library)


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [SHAPE, (7, 3, 1, 2, 9, 8), (7, 1, 1, 1, 16, 576)], ids=str)
def test_the_fast_digest_is_that_of_the_reference(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    pool, ids = random(*shape, dtype=dtype), [6, 0, 3, 3]
    digest = block_digest(pool, ids)
    assert digest.shape == (4, *shape[1:4])
    assert torch.equal(digest, reference_digest(pool, torch.tensor(ids)))
    assert block_digest(pool, []).shape == (0, *shape[1:4])


def test_the_digest_is_the_sum_of_halves_times_weights() -> None:
    pool = random(*SHAPE, dtype=torch.float32)
    halves = unsigned(pool[5, 1, 0, 1].flatten().view(torch.int32))
    weights = unsigned(digest_weights(len(halves) // 2).view(torch.int32))
    total = sum(half * weight for half, weight in zip(halves, weights, strict=True))
    ours = int(block_digest(pool, [5])[0, 1, 0, 1])
    assert (ours - total) % 2**64 == 0


def test_a_flipped_bit_changes_the_digest_of_its_slice_alone() -> None:
    pool = random(*SHAPE, dtype=torch.bfloat16)
    digest = block_digest(pool, [2])
    words = pool.view(torch.int64)
    generator = torch.Generator().manual_seed(3)
    for _ in range(64):
        at = tuple(int(torch.randint(0, n, (), generator=generator)) for n in words.shape[1:])
        words[(2, *at)] ^= BITS[int(torch.randint(0, 64, (), generator=generator))]
        changed = (block_digest(pool, [2]) != digest).nonzero().tolist()
        assert changed == [[0, at[0], at[1], at[2]]]
        digest = block_digest(pool, [2])


class Slices:
    """Copies of one random slice of 256 words, each with a fault of its own."""

    def __init__(self, num_copies: int) -> None:
        generator = torch.Generator().manual_seed(5)
        self.words = torch.randint(-(2**63), 2**63 - 1, (NUM_WORDS,), generator=generator)
        self.copies = self.words.repeat(num_copies, 1)  # [num_copies, NUM_WORDS]
        self.rows = torch.arange(num_copies)
        self.good = int(self.digests()[0])

    def digests(self) -> torch.Tensor:
        pool = self.copies.view(torch.bfloat16).view(len(self.copies), 1, 1, 1, 16, 64)
        return block_digest(pool, range(len(pool))).flatten()

    def num_unseen(self, *flips: tuple[torch.Tensor, torch.Tensor]) -> int:
        """(word, bit) to flip in each copy; afterwards they are as before."""
        self.flip(flips)
        unseen = int((self.digests() == self.good).sum())
        self.flip(flips)
        return unseen

    def flip(self, flips: tuple[tuple[torch.Tensor, torch.Tensor], ...]) -> None:
        for word, bit in flips:
            self.copies[self.rows, word] ^= BITS[bit]


def test_every_flip_of_one_bit_is_seen() -> None:
    slices = Slices(NUM_WORDS * 64)
    assert slices.num_unseen((slices.rows // 64, slices.rows % 64)) == 0


def test_a_million_flips_of_two_bits_are_all_seen() -> None:
    """At every distance between the words, 0 included; a half of them at equal bits of the words,
    the top ones included: twice the sign of a bfloat16."""
    slices, generator = Slices(NUM_WORDS * 64), torch.Generator().manual_seed(6)
    bit, distance = slices.rows % 64, slices.rows // 64
    tried = unseen = 0
    while tried < 1_000_000:
        word = torch.randint(0, NUM_WORDS, slices.rows.shape, generator=generator)
        equal = (tried // len(bit)) % 2 == 0
        move = torch.randint(1, 64, bit.shape, generator=generator)
        other_bit = torch.where((distance > 0) & equal, bit, (bit + move) % 64)
        unseen += slices.num_unseen((word, bit), ((word + distance) % NUM_WORDS, other_bit))
        tried += len(bit)
    assert unseen == 0


def test_halves_that_changed_places_are_seen() -> None:
    slices, generator = Slices(4096), torch.Generator().manual_seed(7)
    halves = slices.copies.view(torch.int32)
    one = torch.randint(0, 2 * NUM_WORDS, slices.rows.shape, generator=generator)
    move = torch.randint(1, 2 * NUM_WORDS, slices.rows.shape, generator=generator)
    other = (one + move) % (2 * NUM_WORDS)
    first = halves[slices.rows, one].clone()
    halves[slices.rows, one] = halves[slices.rows, other]
    halves[slices.rows, other] = first
    assert (slices.digests() != slices.good).all()


def test_weights_are_odd_and_different_and_the_same_for_every_length_and_version() -> None:
    """What the proof in the reference rests on; and what every worker of a fleet must agree on."""
    weights = digest_weights(2**17).view(torch.int32)
    assert (weights & 1).all()
    assert len(weights.unique()) == 2**18
    assert torch.equal(digest_weights(100), digest_weights(2**17)[:100])
    assert unsigned(weights[:4]) == FIRST_WEIGHTS


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
