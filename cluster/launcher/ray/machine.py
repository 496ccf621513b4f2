"""Who sees whose processes and files: what an actor tells of the place where it runs."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACES = Path("/proc/self/ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Of one actor's place."""

    node_id: str
    """Of Ray's node; one machine may have several."""
    address: str
    """At which other nodes reach this one."""
    machine: str
    """As `this_machine` gives it."""
    host_name: str
    gpus: tuple[str, ...]
    """That Ray has given to the actor, as CUDA_VISIBLE_DEVICES names them."""
    pid: int
    """Of the actor, on its machine."""
    uid: int
    """Of the user that it runs as."""


def own_facts(ray: Any) -> HostFacts:
    """Of this process, which is a driver or an actor of Ray's."""
    context = ray.get_runtime_context()
    return HostFacts(
        node_id=str(context.get_node_id()),
        address=str(ray.util.get_node_ip_address()),
        machine=this_machine(),
        host_name=socket.gethostname(),
        gpus=tuple(str(name) for name in context.get_accelerator_ids().get("GPU", ())),
        pid=os.getpid(),
        uid=os.getuid(),
    )


def is_there(pid: int) -> bool:
    """A process of this machine that has not ended; one that nobody has reaped is no more."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"


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
