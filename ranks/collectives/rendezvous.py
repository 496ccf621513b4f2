"""How the ranks of one generation find each other, whatever they meet by.

conductor   place = MeetingPlace.open(kind, ...)   before it starts the ranks
spawner     place.rendezvous       plain values, told to every rank; its descriptor is inherited
every rank  await_all(rendezvous)  until the conductor has called place.let_all_join()
every rank  join(rendezvous, rank) -> GroupCollective
conductor   place.give_up(rank)    once it has seen one end; place.close() when the group is over
"""

from __future__ import annotations

import enum
import logging
import os
import sys
from dataclasses import dataclass

import torch
from torch._C._distributed_c10d import TCPStore

from cluster.errors import ConfigError
from cluster.membership.reach import address_towards
from cluster.sharding import Rank
from kernels.cpu.native_sources import NativeUnavailable
from ranks.collectives.gloo import GlooCollective
from ranks.collectives.group_collective import GroupCollective
from ranks.collectives.native_calls import load_collectives
from ranks.collectives.segment import SharedSegment
from ranks.collectives.shared_memory import SharedMemoryCollective
from ranks.collectives.store import (
    STORE_TIMEOUT_S,
    WHO,
    await_all_here,
    join_store,
    open_store,
    say_all_here,
)

_log = logging.getLogger("splitserve.ranks")


class CollectiveKind(enum.StrEnum):
    """What ranks meet by. One for a whole group, chosen once."""

    SHARED_MEMORY = "shared-memory"
    GLOO = "gloo"
    NCCL = "nccl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """One generation's. Good for a command line, a launch file, a Ray actor's arguments."""

    kind: CollectiveKind
    generation: int
    world_size: int
    segment_fd: int | None = None
    """A descriptor of the rank's process; None but for shared memory."""
    store_host: str = ""
    store_port: int = 0
    """0 for shared memory."""


def choose_kind(device: torch.device, *, is_one_host: bool) -> CollectiveKind:
    """The fastest that all ranks can have, by what this machine has; says why where it is gloo.
    Builds the native library where it is not there."""
    if device.type == "cuda":
        return CollectiveKind.NCCL
    why = why_no_shared_memory() if is_one_host else "they are on several hosts"
    if why is None:
        return CollectiveKind.SHARED_MEMORY
    _log.warning("ranks meet over TCP (gloo), many times slower than in shared memory: %s", why)
    return CollectiveKind.GLOO


class MeetingPlace:
    """The conductor's side of a generation; owns what the ranks meet in."""

    def __init__(
        self, rendezvous: Rendezvous, segment: SharedSegment | None, store: TCPStore | None
    ) -> None:
        self.rendezvous = rendezvous
        self.segment, self._store = segment, store

    @classmethod
    def open(
        cls, kind: CollectiveKind, world_size: int, generation: int, *, address: str = "127.0.0.1"
    ) -> MeetingPlace:
        """`address`: of this machine, as the ranks reach it."""
        if kind is CollectiveKind.SHARED_MEMORY:
            segment = SharedSegment.create(world_size, generation)
            found = Rendezvous(
                kind=kind, generation=generation, world_size=world_size, segment_fd=segment.fd
            )
            return cls(found, segment, None)
        store = open_store(address, generation)
        found = Rendezvous(
            kind=kind,
            generation=generation,
            world_size=world_size,
            store_host=address,
            store_port=store.port,
        )
        return cls(found, None, store)

    def let_all_join(self) -> None:
        """All ranks have arrived: they need not hold any longer, see `await_all`."""
        if self._store is not None:
            say_all_here(self._store)

    def give_up(self, rank: int) -> None:
        """Ends every wait for that rank at once. Gloo and NCCL notice a dead one themselves, a
        frozen one by their deadline."""
        if self.segment is not None:
            self.segment.give_up(rank)

    def close(self) -> None:
        """Idempotent. Ranks that are still there have the segment until they end; the store is
        gone with this."""
        if self.segment is not None:
            self.segment.close()
        self._store = None


def await_all(rendezvous: Rendezvous, *, timeout_s: float) -> None:
    """Before `join`, whose calls have a short deadline: until all ranks have arrived, each of which
    may have had a model to fetch. At once in shared memory, where nobody waits before the first
    call. Raises WrongGeneration, RankLost."""
    if rendezvous.kind is not CollectiveKind.SHARED_MEMORY:
        generation = rendezvous.generation
        store = join_store(
            rendezvous.store_host, rendezvous.store_port, generation, timeout_s=STORE_TIMEOUT_S
        )
        await_all_here(store, generation, timeout_s=timeout_s)


def join(rendezvous: Rendezvous, rank: int, *, deadline_s: float) -> GroupCollective:
    """This process's place in the group; `deadline_s` is of each call, and
    in shared memory of each of its phases: two for every 2 MiB.

    Raises WrongGeneration, RankLost, and ConfigError where the place is taken or what the conductor
    chose cannot be had here.
    """
    if rendezvous.kind is CollectiveKind.SHARED_MEMORY:
        return join_segment(rendezvous, rank, deadline_s=deadline_s)
    own, generation = Rank(rank, rendezvous.world_size), rendezvous.generation
    host, port = rendezvous.store_host, rendezvous.store_port
    store = join_store(host, port, generation, timeout_s=STORE_TIMEOUT_S)
    if rendezvous.kind is CollectiveKind.GLOO:
        address = address_towards(host, port, who=WHO, param=None)
        return GlooCollective(store, own, generation, address=address, deadline_s=deadline_s)
    from ranks.collectives.nccl import NcclCollective  # a torch for CPUs has none

    collective = NcclCollective(store, own, generation, deadline_s=deadline_s)
    collective.connect(torch.zeros(1, 1, device="cuda"))
    return collective


def join_segment(rendezvous: Rendezvous, rank: int, *, deadline_s: float) -> SharedMemoryCollective:
    """`join` in shared memory."""
    try:
        library = load_collectives()
    except NativeUnavailable as reason:
        raise ConfigError(
            f"rank {rank} cannot meet the others in shared memory: {reason}"
        ) from reason
    assert rendezvous.segment_fd is not None, "of shared memory, yet without a segment"
    segment = SharedSegment.attach(
        os.dup(rendezvous.segment_fd),
        world_size=rendezvous.world_size,
        generation=rendezvous.generation,
    )
    own = Rank(rank, rendezvous.world_size)
    return SharedMemoryCollective(segment, own, library, deadline_s=deadline_s)


def why_no_shared_memory() -> str | None:
    """None: it can be had. Builds the native library where it is not there."""
    if not sys.platform.startswith("linux"):
        return "memory without a name (memfd) is Linux's"
    try:
        load_collectives()
        SharedSegment.create(1, generation=0).close()
    except NativeUnavailable as reason:
        return str(reason)
    except OSError as error:
        return f"this system gives no memory without a name ({error})"
    return None
