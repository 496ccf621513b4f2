"""Ports, looked at before anything is loaded."""

from __future__ import annotations

import socket

import psutil

from cluster.errors import ConfigError


def claimed_port(host: str, port: int, *, flag: str) -> int:
    """`port`, or a free one for 0. Raises ConfigError when somebody listens there already."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return int(probe.getsockname()[1])
    except OSError as cause:
        raise ConfigError(
            f"{host}:{port} cannot be listened on: {cause.strerror}{_holder(port)}; "
            f"stop that process or choose another with {flag}",
            param=flag,
        ) from cause


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
