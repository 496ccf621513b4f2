"""Addresses on the loopback interface: one for each pod, and one for each Service.

They are not of use to two clusters at once on one machine, so each cluster has a net of its own:
127.NET.0.0, of which Services have the upper half.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Container

_PROBE_PORT = 53535


class Loopback:
    """Gives out the addresses of one cluster. Holds its net until `close`."""

    def __init__(self) -> None:
        """Raises OSError if 250 clusters run here, or the machine has no such addresses."""
        self._claim, self._net = _free_net()
        self._pods = itertools.cycle(range(1, 127 * 250))

    def close(self) -> None:
        """Another cluster may have the net."""
        self._claim.close()

    @property
    def node(self) -> str:
        return f"127.{self._net}.0.1"

    def pod(self) -> str:
        """One after the other, so that an address comes back late, as in a cluster."""
        number = next(self._pods)
        return f"127.{self._net}.{number // 250}.{2 + number % 250}"

    def service(self, taken: Container[str]) -> str:
        """The first that nobody has."""
        numbers = (
            f"127.{self._net}.{high}.{low}" for high in range(128, 255) for low in range(1, 255)
        )
        return next(address for address in numbers if address not in taken)


def _free_net() -> tuple[socket.socket, int]:
    for net in range(2, 252):
        claim = socket.socket()
        try:
            claim.bind((f"127.{net}.255.254", _PROBE_PORT))
        except OSError:
            claim.close()
            continue
        return claim, net
    raise OSError("no free net of loopback addresses")
