"""How ranks of the conductor's host get the memory that the group shares: as open files.

    conductor   door = DescriptorDoor(path, descriptors)   door.serve() while its ranks start
    rank        fetch_descriptors(path, count)

Whoever starts a rank, it need not be the conductor's child: descriptors travel over a Unix socket
(SCM_RIGHTS), in a folder that is the user's alone.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

from cluster.errors import RankLost

_PEER = struct.Struct("iII")  # pid, user, group
_TIMEOUT_S = 10.0


class DescriptorDoor:
    """The conductor's side; of one thread."""

    def __init__(self, path: Path, descriptors: Sequence[int]) -> None:
        """`descriptors` stay the caller's, and open until `close`."""
        self._descriptors = list(descriptors)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        self._socket.listen(64)
        self._socket.setblocking(False)
        self._waiting = select.poll()  # select itself knows descriptors to 1023 only
        self._waiting.register(self._socket, select.POLLIN)

    def serve(self) -> None:
        """Answers all that wait now, and waits for nobody. Only this user is answered."""
        while self._waiting.poll(0):
            asker, _ = self._socket.accept()
            with asker:
                packed = asker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
                if _PEER.unpack(packed)[1] == os.getuid():
                    with contextlib.suppress(OSError):  # it has ended: its process says so
                        socket.send_fds(asker, [b"\0"], self._descriptors)

    def close(self) -> None:
        """Nobody is answered any more. Idempotent."""
        self._socket.close()


def fetch_descriptors(path: str, count: int) -> list[int]:
    """The caller's own from here on. Raises RankLost where the conductor does not give them."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.settimeout(_TIMEOUT_S)
        try:
            door.connect(path)
            _, found, _, _ = socket.recv_fds(door, 1, count)
        except OSError as error:
            raise RankLost(
                f"the conductor's descriptors cannot be fetched at {path} ({error}); the group is "
                "started anew",
                ranks=(0,),
            ) from error
    if len(found) != count:
        for descriptor in found:
            os.close(descriptor)
        raise RankLost(
            f"the conductor gave {len(found)} descriptors at {path}; {count} are needed; the group "
            "is started anew",
            ranks=(0,),
        )
    for descriptor in found:
        os.set_inheritable(descriptor, False)
    return found
