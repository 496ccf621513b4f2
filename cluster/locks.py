"""Which listeners may open: a stranger finds each of them locked.

    for clients      keys (--api-keys)
    for the fleet    the join token

On loopback no lock is needed. Elsewhere a process that has none for one of its ports does not
start, unless --insecure is said.
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster.config import RouterOptions, WorkerOptions
from cluster.errors import ConfigError
from cluster.join_token import JOIN_TOKEN, own_token
from cluster.membership.reach import is_loopback

_CLIENTS_LOCK = "ask clients for keys with --api-keys FILE (splitserve keys create)"
_FLEETS_LOCK = f"give all processes of the fleet one {JOIN_TOKEN}"


def check_router(options: RouterOptions) -> None:
    """Raises ConfigError naming each port that strangers could use, and what locks it."""
    if options.insecure or is_loopback(options.host):
        return
    if options.api_keys is None:
        ports = {"--port": options.port, "--grpc-port": options.grpc_port}
        raise _open_to_strangers(options.host, ports, _CLIENTS_LOCK)
    if not _is_fleet_locked():
        flag = "--grpc-port" if options.fleet_port is None else "--fleet-port"
        raise _open_to_strangers(options.host, {flag: options.workers_port}, _FLEETS_LOCK)


def check_worker(options: WorkerOptions) -> None:
    """Raises ConfigError, as check_router."""
    if options.insecure or is_loopback(options.host) or _is_fleet_locked():
        return
    raise _open_to_strangers(options.host, {"--port": options.port}, _FLEETS_LOCK)


def _is_fleet_locked() -> bool:
    return own_token() is not None


def _open_to_strangers(host: str, ports: Mapping[str, int], lock: str) -> ConfigError:
    named = " and ".join(f"{flag} {port}" for flag, port in ports.items())
    return ConfigError(
        f"{named} would be open to every stranger who reaches {host}: {lock}, listen on 127.0.0.1, "
        "or say --insecure where the network keeps strangers away",
        param="insecure",
    )
