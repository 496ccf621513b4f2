"""Where ranks on several hosts find each other: a TCP store at whatever port is free.

    conductor   open_store(host, generation)  -> its port goes to the ranks
                say_all_here(store)              once all ranks have arrived
    rank        join_store(host, port, ...)   -> await_all_here, which may take long -> claim(rank)

A store serves one generation and ends with the process that has opened it.
"""

from __future__ import annotations

import contextlib
import socket
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from cluster.errors import ConfigError, RankLost, WrongGeneration
from cluster.membership.reach import address_towards
from ranks.collectives.loss import is_taken

_GENERATION, _ALL_HERE = "generation", "all-here"
WHO = "ranks meet"
STORE_TIMEOUT_S = 60.0
"""For a store to open, or to answer; a rank's first word to the others."""


def open_store(host: str, generation: int) -> TCPStore:
    """At `host`, an address of this machine that the ranks reach, and at no other; `.port` is the
    real one. Raises ConfigError for an address that is not this machine's, and for an IPv6 one."""
    address_towards(host, 0, who=WHO, param=None)
    limit = timedelta(seconds=STORE_TIMEOUT_S)
    with _listening(host) as listener:
        store = TCPStore(
            host,
            listener.getsockname()[1],
            is_master=True,
            timeout=limit,
            wait_for_workers=False,
            master_listen_fd=listener.fileno(),
        )
        listener.detach()  # the store's from here on
    store.set(_GENERATION, str(generation))
    return store


def _listening(host: str) -> socket.socket:
    try:
        return socket.create_server((host, 0))
    except OSError as error:
        raise ConfigError(
            f"ranks of other hosts were to reach this one at {host}, where it cannot listen "
            f"({error}); start Ray here with --node-ip-address of this machine"
        ) from error


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


def say_all_here(store: Store) -> None:
    """The conductor's word: whoever holds in `await_all_here` goes on."""
    store.set(_ALL_HERE, "yes")


def await_all_here(store: Store, generation: int, *, timeout_s: float) -> None:
    """Returns with the conductor's word that all ranks have arrived. Raises RankLost where it does
    not come, or its store has gone."""
    try:
        store.wait([_ALL_HERE], timedelta(seconds=timeout_s))
    except RuntimeError as error:
        raise RankLost(
            f"the conductor of generation {generation} has not said that all its ranks have "
            f"arrived, and says no more ({error}); the group is started anew",
            ranks=(0,),
        ) from error


def claim(store: Store, rank: int, generation: int) -> Store:
    """The generation's part of the store, for this rank alone. Raises ConfigError for a second."""
    part = PrefixStore(f"ranks-{generation}", store)
    if part.add(f"joined-{rank}", 1) > 1:
        raise is_taken(rank, generation)
    return part


def absent(store: Store, rank: int, world_size: int, *, grace_s: float) -> tuple[int, ...]:
    """Asked by every rank whose call has failed: who of the others does not say within `grace_s`
    that it lives. A store that does not answer went with the conductor, rank 0."""
    others = {other: f"lives-{other}" for other in range(world_size) if other != rank}
    limit = timedelta(seconds=grace_s)
    try:
        store.set(f"lives-{rank}", "yes")
        with contextlib.suppress(RuntimeError):
            store.wait(list(others.values()), limit)
            return ()
        return tuple(other for other, key in others.items() if not store.check([key]))
    except RuntimeError:
        return (0,)
