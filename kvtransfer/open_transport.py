"""From the name of a transport, as in `PeerOptions.kv_transport`, to the transport."""

from __future__ import annotations

from cluster.errors import ConfigError
from kvtransfer import loopback, nixl_transport
from kvtransfer.local_pool import LocalPool
from kvtransfer.transport import Transport


def open_transport(kind: str, pool: LocalPool, name: str) -> Transport:
    """`name` must be new: it is the worker's incarnation. Raises ConfigError for another `kind`,
    or when the library for it is missing."""
    if kind == nixl_transport.TRANSPORT:
        return nixl_transport.NixlTransport(pool, name)
    if kind == loopback.TRANSPORT:
        return loopback.LoopbackTransport(pool, name)
    raise ConfigError(
        f"kv_transport is {kind!r}; choose {nixl_transport.TRANSPORT} or {loopback.TRANSPORT}",
        param="kv_transport",
    )
