"""A Ray of our own that other hosts join, so that the ranks of one engine may be on several.

Each host has an equal part of the ranks. The engine's own host has Ray's head, at a known address;
the others join it with `ray start --address=HOST:PORT --block`, and offer `splitserve_rank`s, or
GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import environ

from cluster.errors import ConfigError

_HEAD_PORT = "RAY_GCS_SERVER_PORT"
"""Ray's own: `ray.init` has no word for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRay:
    """Where the head listens, and how many hosts there are to be."""

    host: str
    """An address of this machine at which the others reach it."""
    port: int
    num_hosts: int

    def num_ranks_of_a_host(self, num_ranks: int) -> int:
        """Of `num_ranks` in all: as many on each, and the last may have fewer."""
        return -(-num_ranks // self.num_hosts)

    @contextmanager
    def head_port_told(self) -> Iterator[None]:
        """To a Ray that is started meanwhile."""
        before = environ.get(_HEAD_PORT)
        environ[_HEAD_PORT] = str(self.port)
        try:
            yield
        finally:
            del environ[_HEAD_PORT]
            if before is not None:
                environ[_HEAD_PORT] = before


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWait:
    """With hosts that have not joined yet."""

    limit_s: float = 0.0
    on_wait: Callable[[], None] = lambda: None
    """Called about once a second."""


def open_ray_of(listen: str | None, num_hosts: int, address: str | None) -> OpenRay | None:
    """As the options say: --ray-listen, --ray-hosts and --ray-address. None: a Ray of our own is
    for this host alone. Raises ConfigError for what goes not together."""
    if listen is None:
        if num_hosts > 1:
            raise ConfigError(
                f"--ray-hosts {num_hosts} needs --ray-listen: host:port at which they join",
                param="ray_hosts",
            )
        return None
    if address is not None:
        raise ConfigError(
            f"--ray-listen {listen} starts a Ray and --ray-address {address} names one; leave one "
            "out",
            param="ray_listen",
        )
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ConfigError(
            f"--ray-listen is {listen!r}; write host:port, an address of this machine and a port "
            "from 1 to 65535",
            param="ray_listen",
        )
    return OpenRay(host=host, port=int(port), num_hosts=num_hosts)
