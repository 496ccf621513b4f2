"""Where ranks on several hosts find each other: a TCP store at whatever port is free.

    conductor   open_store(host, generation)  -> its port goes to the ranks
    rank        join_store(host, port, ...)   -> claim(rank)

A store serves one generation and ends with the process that has opened it.
"""

from __future__ import annotations

from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from cluster.errors import RankLost, WrongGeneration
from ranks.collectives.loss import is_taken

_GENERATION = "generation"
STORE_TIMEOUT_S = 60.0
"""For a store to open, or to answer; a rank's first word to the others."""


def open_store(host: str, generation: int) -> TCPStore:
    """At `host`, an address of this machine that the ranks reach; `.port` is the real one."""
    limit = timedelta(seconds=STORE_TIMEOUT_S)
    store = TCPStore(host, 0, is_master=True, timeout=limit, wait_for_workers=False)
    store.set(_GENERATION, str(generation))
    return store


def join_store(host: str, port: int, generation: int, *, timeout_s: float) -> TCPStore:
    """That of a group that this rank was started for.

    Raises WrongGeneration for another's, RankLost where nobody answers.
    """
    limit = timedelta(seconds=timeout_s)
    try:
        store = TCPStore(host, port, is_master=False, timeout=limit, wait_for_workers=False)
        theirs = int(store.get(_GENERATION))
    except RuntimeError as error:
        raise RankLost(
            f"no store of generation {generation} answers at {host}:{port} within {timeout_s:g} s "
            f"({error}); the group is started anew",
            ranks=(0,),
        ) from error
    if theirs != generation:
        raise WrongGeneration(
            f"this rank is of generation {generation}; the store at {host}:{port} is of "
            f"generation {theirs}; the rank must be started anew"
        )
    return store


def claim(store: Store, rank: int, generation: int) -> Store:
    """The generation's part of the store, for this rank alone. Raises ConfigError for a second."""
    part = PrefixStore(f"ranks-{generation}", store)
    if part.add(f"joined-{rank}", 1) > 1:
        raise is_taken(rank, generation)
    return part


def absent(store: Store, rank: int, world_size: int, *, grace_s: float) -> tuple[int, ...]:
    """Asked by every rank whose call has failed: who does not say within `grace_s` that it lives.

    A store that does not answer was rank 0's.
    """
    try:
        store.set(f"lives-{rank}", "yes")
    except RuntimeError:
        return (0,)
    limit = timedelta(seconds=grace_s)
    return tuple(other for other in range(world_size) if not _comes(store, other, limit))


def _comes(store: Store, rank: int, limit: timedelta) -> bool:
    try:
        store.wait([f"lives-{rank}"], limit)
    except RuntimeError:
        return False
    return True
