"""Which listeners may open: a stranger finds each of them locked.

    for clients      keys (--api-keys), certificates that they show (--tls-client-ca)
    for the fleet    certificates of its own (SPLITSERVE_FLEET_TLS), the join token
    for the page     the join token, and --tls-cert that hides it on its way

On loopback no lock is needed. Elsewhere a process that has none for one of its ports does not
start, unless --insecure is said. With --tls-cert alone a router starts: nobody reads along, and
anybody may ask, so that it warns of it.

Clients and the fleet share a port on loopback alone, and only without certificates: they do not
show each other those of one authority. The fleet's has an address of its own where that is named.
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster.config import RouterOptions, WorkerOptions
from cluster.errors import ConfigError
from cluster.join_token import JOIN_TOKEN, own_token
from cluster.membership.reach import is_loopback
from cluster.tls.fleet import FLEET_TLS, has_fleet_tls

_CLIENTS_LOCK = "give it --tls-cert and --tls-key, ask clients for keys with --api-keys FILE"
_FLEETS_LOCK = f"give all processes of the fleet one {JOIN_TOKEN}, or {FLEET_TLS}"


def check_router(options: RouterOptions) -> None:
    """Raises ConfigError naming each port that strangers could use, and what locks it."""
    _check_sharing(options)
    _check_page(options)
    if options.insecure:
        return
    if not is_loopback(options.host) and not _are_clients_locked(options):
        ports = {"--port": options.port, "--grpc-port": options.grpc_port}
        if options.ext_proc_port is not None:
            ports["--ext-proc-port"] = options.ext_proc_port
        raise _open_to_strangers(options.host, ports, _CLIENTS_LOCK)
    if not is_loopback(options.workers_host) and not _is_fleet_locked():
        flag = "--grpc-port" if options.fleet_port is None else "--fleet-port"
        raise _open_to_strangers(options.workers_host, {flag: options.workers_port}, _FLEETS_LOCK)
    _check_apart(options)


def has_strangers(options: RouterOptions) -> bool:
    """Whether somebody may come to the clients' port who is to know nothing of the fleet."""
    return options.api_keys is not None or not (options.insecure or is_loopback(options.host))


def warning_of_strangers(options: RouterOptions) -> str | None:
    """For its start: what `check_router` lets pass though whoever reaches the router may ask it."""
    tls = options.tls
    if options.insecure or is_loopback(options.host) or options.api_keys is not None:
        return None
    if tls.tls_cert is None or tls.tls_client_ca is not None:
        return None
    return (
        f"anybody who reaches {options.host} may send requests: --tls-cert encrypts them and asks "
        "for nothing; ask clients for keys with --api-keys FILE or for certificates with "
        "--tls-client-ca FILE, or say --insecure where that is meant"
    )


def check_worker(options: WorkerOptions) -> None:
    """Raises ConfigError, as check_router."""
    if options.insecure or is_loopback(options.host) or _is_fleet_locked():
        return
    raise _open_to_strangers(options.host, {"--port": options.port}, _FLEETS_LOCK)


def needs_fleet_port(options: RouterOptions) -> bool:
    """Whether the fleet and clients do not share one."""
    is_near = is_loopback(options.host) and options.aside.fleet_host is None
    return not is_near or _show_certificates(options)


def _show_certificates(options: RouterOptions) -> bool:
    return has_fleet_tls() or options.tls.tls_cert is not None


def _are_clients_locked(options: RouterOptions) -> bool:
    return options.api_keys is not None or options.tls.tls_cert is not None


def _check_sharing(options: RouterOptions) -> None:
    """Of what makes it impossible, whoever is kept away by whom."""
    if options.fleet_port is not None:
        return
    if _show_certificates(options):
        raise ConfigError(
            f"--grpc-port {options.grpc_port} cannot be of clients and of the fleet where "
            f"certificates are shown (--tls-cert, {FLEET_TLS}): give the fleet a --fleet-port",
            param="fleet_port",
        )
    if options.aside.fleet_host is not None:
        raise ConfigError(
            f"--fleet-host {options.aside.fleet_host} is of --fleet-port: give the fleet one",
            param="fleet_port",
        )


def _check_apart(options: RouterOptions) -> None:
    if options.fleet_port is None and needs_fleet_port(options):
        raise ConfigError(
            f"--grpc-port {options.grpc_port} would be the fleet's and that of all who reach "
            f"{options.host}: give the fleet a --fleet-port, at a --fleet-host that clients do not "
            "reach where there is one, or say --insecure where the network keeps strangers away",
            param="fleet_port",
        )


def _check_page(options: RouterOptions) -> None:
    """A browser sends the token in the clear unless TLS hides it."""
    page = options.page
    if page.page_port is None or options.insecure or is_loopback(page.page_host):
        return
    if own_token() is None or options.tls.tls_cert is None:
        lock = f"give the fleet a {JOIN_TOKEN} and the router --tls-cert and --tls-key"
        raise _open_to_strangers(page.page_host, {"--page-port": page.page_port}, lock)


def _is_fleet_locked() -> bool:
    return own_token() is not None or has_fleet_tls()


def _open_to_strangers(host: str, ports: Mapping[str, int], lock: str) -> ConfigError:
    named = " and ".join(f"{flag} {port}" for flag, port in ports.items())
    return ConfigError(
        f"{named} would be open to every stranger who reaches {host}: {lock}, listen on 127.0.0.1, "
        "or say --insecure where the network keeps strangers away",
        param="insecure",
    )
