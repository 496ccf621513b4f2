"""Ports, looked at before anything is loaded."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType

import psutil

from cluster.errors import ConfigError


class PortClaims:
    """Several ports, all held until the block ends: the system gives none of them twice."""

    def __init__(self) -> None:
        self._held = ExitStack()

    def __enter__(self) -> PortClaims:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held.close()

    def claim_all(self, wanted: Mapping[str, tuple[str, int]]) -> dict[str, int]:
        """Ports by flag, of hosts and ports by flag. Those that are named come first: else the
        system might give one of them for a 0. Raises ConfigError, see `claim`."""
        named_first = sorted(wanted.items(), key=lambda each: each[1][1] == 0)
        return {flag: self.claim(host, port, flag=flag) for flag, (host, port) in named_first}

    def claim(self, host: str, port: int, *, flag: str) -> int:
        """`port`, or a free one for 0. Raises ConfigError when somebody listens there already."""
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            probe = self._held.enter_context(socket.socket(family))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return int(probe.getsockname()[1])
        except OSError as cause:
            raise ConfigError(
                f"{host}:{port} cannot be listened on: {cause.strerror}{_holder(port)}; "
                f"stop that process or choose another with {flag}",
                param=flag,
            ) from cause


def claimed_port(host: str, port: int, *, flag: str) -> int:
    """The only one. Raises ConfigError, see `PortClaims.claim`."""
    with PortClaims() as claims:
        return claims.claim(host, port, flag=flag)


def _holder(port: int) -> str:
    """Who listens on the port, where the system tells us."""
    try:
        connections = psutil.net_connections(kind="tcp")
        pid = next(
            c.pid for c in connections if c.laddr and c.laddr.port == port and c.status == "LISTEN"
        )
        return f" (by {psutil.Process(pid).name()}, pid {pid})" if pid else ""
    except (psutil.Error, OSError, StopIteration):
        return ""
