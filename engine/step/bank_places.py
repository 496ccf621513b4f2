"""What lies in the bank: a slot and LoRA ranks for each adapter, the least lately used first.

place_for(lora_rank) -> a place, and who is in its way -> they are dropped -> put -> arrive
                                                          '-- somebody holds one: not now
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from engine.model.adapters.bank import AdapterRoom
from engine.step.lora_runs import LoraRuns

_FREE: Final = (False, -1, 0)


@dataclass(slots=True)
class BankResident:
    """In the bank, or on its way there."""

    slot: int
    start: int
    num_bytes: int
    num_users: int = 0
    is_placed: bool = False

    @property
    def is_held(self) -> bool:
        """It may not give way now."""
        return self.num_users > 0 or not self.is_placed


@dataclass(frozen=True, slots=True)
class BankPlace:
    """Where an adapter could lie, and the digests of those that would have to give way."""

    start: int
    in_way: tuple[str, ...]


class BankPlaces:
    """Of one engine's bank."""

    def __init__(self, room: AdapterRoom) -> None:
        self.num_lora_ranks, self._num_slots = room.num_lora_ranks, room.num_slots
        self._runs = LoraRuns(room.num_lora_ranks)
        self._free_slots = list(range(room.num_slots - 1, 0, -1))
        self._residents: OrderedDict[str, BankResident] = OrderedDict()
        self.num_freed = 0
        """Grows with whatever may make a place free: without that no other one is."""

    def __contains__(self, digest: str) -> bool:
        return digest in self._residents

    def get(self, digest: str) -> BankResident | None:
        """None: it is not there, and not on its way."""
        return self._residents.get(digest)

    def hold(self, digest: str) -> int:
        """By one more request; its slot."""
        item = self._residents[digest]
        item.num_users += 1
        self._residents.move_to_end(digest)
        return item.slot

    def release(self, digest: str) -> None:
        """By one that held it."""
        self._residents[digest].num_users -= 1
        self.num_freed += 1

    def arrive(self, digest: str) -> None:
        """It is placed, and may be held."""
        self._residents[digest].is_placed = True
        self.num_freed += 1

    def place_for(self, rank: int) -> BankPlace:
        """One that is free; else where nobody holds what is in the way, else any other: there the
        place whose residents were all used less lately than one of each other place. `rank` is at
        most num_lora_ranks."""
        ages = {
            item.start: (item.is_held, age, digest)
            for age, (digest, item) in enumerate(self._residents.items())
        }

        def cost(place: tuple[int, list[int]]) -> tuple[bool, int, int]:
            in_way = [ages[start] for start in place[1]]
            if not in_way:
                return _FREE
            return any(held for held, _, _ in in_way), max(age for _, age, _ in in_way), len(in_way)

        places = self._runs.places(rank)
        start, in_way = min((p for p in places if p[1] or self._free_slots), key=cost)
        return BankPlace(start, tuple(ages[first][2] for first in in_way))

    def is_free(self, place: BankPlace) -> bool:
        """Nobody holds what is still in its way."""
        found = (self._residents.get(digest) for digest in place.in_way)
        return not any(item is not None and item.is_held for item in found)

    def put(self, digest: str, start: int, rank: int, *, num_bytes: int) -> int:
        """At a place with nobody in its way any more: the slot that it is on its way to."""
        self._runs.take(start, rank)
        item = BankResident(self._free_slots.pop(), start, num_bytes)
        self._residents[digest] = item
        return item.slot

    def drop(self, digest: str) -> BankResident:
        """It is not there any more."""
        item = self._residents.pop(digest)
        self._runs.give_back(item.start)
        self._free_slots.append(item.slot)
        self.num_freed += 1
        return item

    def check_invariants(self) -> Iterator[str]:
        """Broken promises, in words."""
        residents = self._residents.values()
        slots = sorted([*self._free_slots, *(item.slot for item in residents)])
        if slots != list(range(1, self._num_slots)):
            yield "slots are lost"
        if any(item.num_users < 0 for item in residents):
            yield "an adapter was left more often than entered"
