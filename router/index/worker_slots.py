"""Workers as bits: a free bit is given again, so masks are as wide as the fleet was at its peak.

add -> a bit of its own -> retire: its name is unknown, masks may still have the bit
                           -> free: no mask has it; given to the next
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cluster.identity import WorkerKey

MAX_NAMED_MASKS = 4096
"""Masks whose ids are remembered: prompts repeat their prefixes, so masks repeat too."""

DIGEST_BYTES = 6
DIGESTS = 1 << 8 * DIGEST_BYTES
"""A sum of names, which are hashes: the same in whatever order they come. Metrics are floats, which
have 53 bits."""


@dataclass(slots=True)
class _Slot:
    worker: WorkerKey
    block_size_tokens: int
    num_blocks: int = 0
    digest: int = 0
    is_retired: bool = False


class WorkerSlots:
    """worker <-> bit, and how many blocks each holds."""

    def __init__(self) -> None:
        self._slots: list[_Slot | None] = []
        self._index_of: dict[WorkerKey, int] = {}
        self._named: dict[int, tuple[str, ...]] = {}

    def __contains__(self, worker: WorkerKey) -> bool:
        return worker in self._index_of

    def add(self, worker: WorkerKey, block_size_tokens: int) -> None:
        """Gives a bit to a worker that has none."""
        if worker in self._index_of:
            return
        slot = _Slot(worker, block_size_tokens)
        if None in self._slots:
            index = self._slots.index(None)
            self._slots[index] = slot
        else:
            index = len(self._slots)
            self._slots.append(slot)
        self._index_of[worker] = index

    def retire(self, worker: WorkerKey) -> int:
        """From now on the worker is unknown and in nobody's answer. Its bit, to be freed."""
        bit = self.bit_of(worker)
        self._slot_of(worker).is_retired = True
        del self._index_of[worker]
        self._named.clear()
        return bit

    def free(self, bits: int) -> None:
        """No mask has these bits of retired workers any more."""
        for index in range(len(self._slots)):
            if bits >> index & 1:
                self._slots[index] = None
        self._named.clear()  # a mask that had them means somebody else from now on

    def bit_of(self, worker: WorkerKey) -> int:
        """A mask with one bit."""
        return 1 << self._index_of[worker]

    def block_size_of(self, worker: WorkerKey) -> int:
        """Tokens in this worker's blocks."""
        return self._slot_of(worker).block_size_tokens

    def num_blocks_of(self, worker: WorkerKey) -> int:
        """Blocks this worker holds; 0 for an unknown one."""
        return self._slot_of(worker).num_blocks if worker in self._index_of else 0

    def ids_of(self, bits: int) -> tuple[str, ...]:
        """The worker ids of a mask. An id has one incarnation here at a time."""
        ids = self._named.get(bits)
        if ids is None:
            if len(self._named) >= MAX_NAMED_MASKS:
                self._named.clear()
            ids = self._named[bits] = tuple(
                slot.worker.worker_id for slot in self._in(bits) if not slot.is_retired
            )
        return ids

    def count(self, bits: int, num_blocks: int) -> None:
        """The workers of `bits` gained blocks, or lost them (negative)."""
        for slot in self._in(bits):
            slot.num_blocks += num_blocks

    def digest_of(self, worker: WorkerKey) -> int:
        """Of the blocks that `hold` has told of; 0 for none, and for an unknown worker."""
        return self._slot_of(worker).digest if worker in self._index_of else 0

    def hold(self, gained: int, lost: int, names: list[bytes]) -> None:
        """The workers of these bits hold blocks from now on, or do so no more."""
        of_names = sum(int.from_bytes(name[:DIGEST_BYTES]) for name in names)
        for slot in self._in(gained):
            slot.digest = (slot.digest + of_names) % DIGESTS
        for slot in self._in(lost):
            slot.digest = (slot.digest - of_names) % DIGESTS

    def _in(self, bits: int) -> Iterator[_Slot]:
        while bits:
            low = bits & -bits
            slot = self._slots[low.bit_length() - 1]
            assert slot is not None, "a mask names a worker that is gone"
            yield slot
            bits ^= low

    def _slot_of(self, worker: WorkerKey) -> _Slot:
        slot = self._slots[self._index_of[worker]]
        assert slot is not None
        return slot
