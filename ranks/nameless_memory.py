"""Memory that processes of one host share and no file system has a name for.

    conductor   NamelessMemory.create(...)    its descriptor goes to the ranks
    rank        NamelessMemory.attach(fd, ...)
    all         close(); the kernel takes it back with the last one that had it

A group that is killed leaves nothing behind. Facts come first, so that a rank of another generation
is refused; what lies after them is for its owner to say.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

from cluster.errors import WrongGeneration

_FACTS = struct.Struct("<QQQ")
_MFD_NOEXEC_SEAL = 8


class MemoryFacts(NamedTuple):
    """What the processes that map it have to agree on."""

    magic: int
    """Of what it is for."""
    generation: int
    world_size: int


class NamelessMemory:
    """One process's view of it."""

    def __init__(self, fd: int) -> None:
        """Maps what `create` or `attach` has checked; `fd` belongs to it from here on."""
        self.fd = fd
        self.view = mmap.mmap(fd, 0, mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
        self.facts = MemoryFacts(*_FACTS.unpack_from(self.view))

    @classmethod
    def create(
        cls, label: str, facts: MemoryFacts, num_bytes: int, sizes: Sequence[int]
    ) -> NamelessMemory:
        """Zeroes but for the facts and its owner's `sizes`; nobody can change its length. `label`
        is for people, in /proc. Raises OSError where the system gives none."""
        fd = _nameless(f"splitserve-{label}-{facts.generation}")
        try:
            os.ftruncate(fd, num_bytes)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            os.pwrite(fd, _FACTS.pack(*facts) + struct.pack(f"<{len(sizes)}Q", *sizes), 0)
            return cls(fd)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def attach(cls, fd: int, facts: MemoryFacts) -> NamelessMemory:
        """That of a group that this rank was started for.

        Raises WrongGeneration for any other; `fd` is then closed.
        """
        found = MemoryFacts(*_FACTS.unpack(os.pread(fd, _FACTS.size, 0).ljust(_FACTS.size, b"\0")))
        if found == facts:
            return cls(fd)
        os.close(fd)
        theirs = f"of generation {found.generation} with {found.world_size}"
        raise WrongGeneration(
            f"this rank is of generation {facts.generation} with {facts.world_size} ranks; the "
            f"shared memory is {theirs if found.magic == facts.magic else 'of no group'}; the rank "
            "must be started anew"
        )

    def sizes(self, count: int) -> tuple[int, ...]:
        """The first `count` of its owner's."""
        return struct.unpack_from(f"<{count}Q", self.view, _FACTS.size)

    def address(self) -> int:
        """Of the first byte, until `close`."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self.view))

    @property
    def is_closed(self) -> bool:
        """By this process."""
        return self.view.closed

    def close(self) -> None:
        """Idempotent. Nobody may be in a call."""
        if not self.view.closed:
            self.view.close()
            os.close(self.fd)


def _nameless(label: str) -> int:
    """Memory whose size can be sealed. Some systems refuse what could be executed
    (vm.memfd_noexec=2); older ones do not know how to ask for the other kind."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create(label, flags | _MFD_NOEXEC_SEAL)
    except OSError:
        return os.memfd_create(label, flags)
