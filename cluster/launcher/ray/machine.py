"""Who sees whose processes and files: what an actor tells of the place where it runs."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.launcher.protocol import NodeFacts
from cluster.process.free_memory import free_memory_share
from cluster.process.own_cores import available_cores

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACES = Path("/proc/self/ns")
_STATE, _PARENT, _BIRTH = 0, 1, 19
"""After the name in proc(5)'s stat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Of one actor's place."""

    node_id: str
    """Of Ray's node; one machine may have several."""
    machine: str
    """As `this_machine` gives it."""
    host_name: str
    gpus: tuple[str, ...]
    """That Ray has given to the actor, as CUDA_VISIBLE_DEVICES names them."""
    pid: int
    """Of the actor, on its machine."""
    uid: int
    """Of the user that it runs as."""
    born: int
    """When, as `birth_of` gives it: by then its pid may be another's."""
    niceness: int
    """Of the thread that was asked, and so of the processes that it starts."""
    node: NodeFacts

    @property
    def address(self) -> str:
        """At which other nodes reach this one."""
        return self.node.address


def own_facts(ray: Any) -> HostFacts:
    """Of this process, which is a driver or an actor of Ray's."""
    context, address = ray.get_runtime_context(), str(ray.util.get_node_ip_address())
    free_share = free_memory_share()
    return HostFacts(
        node_id=str(context.get_node_id()),
        machine=this_machine(),
        host_name=socket.gethostname(),
        gpus=tuple(str(name) for name in context.get_accelerator_ids().get("GPU", ())),
        pid=os.getpid(),
        uid=os.getuid(),
        born=birth_of(os.getpid()) or 0,
        niceness=os.getpriority(os.PRIO_PROCESS, 0),
        node=NodeFacts(
            address=address,
            num_cores=available_cores(),
            free_memory_share=free_share,
            free_memory_share_now=free_share,
        ),
    )


def is_there(pid: int) -> bool:
    """A process of this machine that has not ended; one that nobody has reaped is no more."""
    return (fields := _stat(pid)) is not None and fields[_STATE] not in "ZX"


def birth_of(pid: int) -> int | None:
    """Ticks after the machine's own start; None where the process is not to be seen."""
    return None if (fields := _stat(pid)) is None else int(fields[_BIRTH])


def parent_of(pid: int) -> int | None:
    """As `birth_of`."""
    return None if (fields := _stat(pid)) is None else int(fields[_PARENT])


def this_machine() -> str:
    """Equal for two processes that see each other's pids, and find each other's Unix sockets: one
    kernel, and one container of it. Two nodes of Ray may be one machine, and two containers of one
    machine have one address."""
    try:
        parts = [_BOOT_ID.read_text().strip()]
        parts += [os.readlink(_NAMESPACES / kind) for kind in ("pid", "mnt")]
    except OSError:  # no Linux: one machine, one system
        return socket.gethostname()
    return " ".join(parts)


def _stat(pid: int) -> list[str] | None:
    """What follows the name, which may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() or None
    except OSError:
        return None
