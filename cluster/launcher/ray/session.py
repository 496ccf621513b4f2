"""This process's connection to a Ray cluster, or to a Ray of its own.

    open   connected already   that one, and left as it is
           an address          that cluster: --ray-address, else $RAY_ADDRESS
           neither             a Ray is started here: one node, at every address of this machine;
                              its token (~/.ray/auth_token) alone says who comes in. Other hosts
                              join it where it is an OpenRay
    close  what `open` began is ended: the connection, and a Ray of our own with all it started

Ray ends the actors and placement groups of a connection with it, whether it was closed or its
process has died. A Ray of our own is ended by the kernel with the thread that has started it.
"""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from os import environ
from pathlib import Path
from typing import Any

import cluster
from cluster.errors import ConfigError
from cluster.launcher.ray.bundles import OWN, RANK_RESOURCE, WORKER_LABEL, NodeRoom
from cluster.launcher.ray.library import forwards_logs, ray_library
from cluster.launcher.ray.open_ray import OpenRay
from cluster.logs import get_logger
from cluster.process.owned_folder import OwnedFolder
from cluster.process.thread_call import in_thread_within

NAMESPACE = "splitserve"
CLOSE_TIMEOUT_S = 10.0
_FOLDER_PREFIX, _FOLDER_ROOM = "splitserve-ray-", Path("/tmp")
"""The path of a Unix socket has 107 characters at most, and Ray adds 65 to its folder's."""
_ANSWER_TIMEOUT_S = 5.0
_STORE_BYTES = 80 * 2**20
"""Ray's least is 75 MiB; what goes through it here are log lines."""

_OF_OUR_OWN = {
    "memory_monitor_refresh_ms": 0,  # the kernel judges
    "worker_niceness": 0,  # ranks would wait for whatever else runs here
}

_log = get_logger("ray")


class RaySession:
    """One per process. Calls from any thread, but `open`."""

    def __init__(self, ray: Any, *, is_own: bool, folder: OwnedFolder | None = None) -> None:
        self._is_own = is_own
        self._folder = folder
        self.ray = ray
        context = ray.get_runtime_context()
        self.address = str(context.gcs_address)
        """With which other processes reach the same cluster."""
        self.node_id = str(context.get_node_id())

    @classmethod
    def open(
        cls, address: str | None = None, *, num_ranks: int, hosts: OpenRay | None = None
    ) -> RaySession:
        """`num_ranks` are what a Ray of our own has room for, with all its `hosts`, who are asked
        for by nobody that names an address.

        From the main thread: the kernel ends a Ray of our own with the thread that has started it,
        and only there can the handler that Ray sets for SIGTERM be taken back. Raises ConfigError
        where Ray is not installed, does not start, or nobody answers at the address.
        """
        assert threading.current_thread() is threading.main_thread(), "Ray would end with a thread"
        ray = ray_library()
        if ray.is_initialized():
            return cls(ray, is_own=False)
        if hosts is None:
            address = address or environ.get("RAY_ADDRESS") or None
        with _termination_is_ours():
            return cls._connected(ray, address) if address else cls._started(ray, num_ranks, hosts)

    @classmethod
    def _connected(cls, ray: Any, address: str) -> RaySession:
        check_somebody_listens(address)
        _init(
            ray,
            f"no way into the Ray cluster at {address} (one that asks for a token is entered with "
            "RAY_AUTH_MODE=token, and the token in ~/.ray/auth_token or RAY_AUTH_TOKEN)",
            address=address,
        )
        return cls(ray, is_own=True)

    @classmethod
    def _started(cls, ray: Any, num_ranks: int, hosts: OpenRay | None = None) -> RaySession:
        try:
            folder = OwnedFolder.make(_FOLDER_PREFIX, _FOLDER_ROOM)
        except OSError as cause:
            raise ConfigError(
                f"a Ray of our own has no folder for its sockets: {cause}; make /tmp writable, or "
                "name a cluster with --ray-address",
                param="ray_address",
            ) from cause
        try:
            _start(ray, folder, num_ranks, hosts)
        except ConfigError:
            folder.remove()
            raise
        return cls(ray, is_own=True, folder=folder)

    @property
    def started_ray(self) -> bool:
        """True of a Ray of our own."""
        return self._folder is not None

    def nodes(self) -> list[NodeRoom]:
        """Those that live, this process's own first."""
        free = self.ray._private.state.available_resources_per_node()
        rooms = [
            NodeRoom(
                node["NodeID"],
                node["NodeManagerAddress"],
                node["Resources"],
                free.get(node["NodeID"], {}),
                node.get("Labels", {}).get(WORKER_LABEL) == OWN,
            )
            for node in self.ray.nodes()
            if node["Alive"]
        ]
        return sorted(rooms, key=lambda room: (room.node_id != self.node_id, room.label))

    def ask_head(self) -> None:
        """Returns when the cluster's head answers. Raises RayError when it does not, in seconds."""
        worker = self.ray._private.worker.global_worker
        worker.gcs_client.check_alive([], timeout=_ANSWER_TIMEOUT_S)

    def close(self) -> None:
        """Idempotent. Waits until a Ray of our own is gone: about a second, and CLOSE_TIMEOUT_S at
        most, where its head does not answer; then the kernel ends it with us."""
        if not self._is_own:
            return
        self._is_own = False
        try:
            in_thread_within(CLOSE_TIMEOUT_S, "the end of Ray", self.ray.shutdown)
        except TimeoutError:
            _log.warning("Ray did not end in time", limit_s=CLOSE_TIMEOUT_S)
        if self._folder is not None:
            self._folder.remove()


def _start(ray: Any, folder: OwnedFolder, num_ranks: int, hosts: OpenRay | None) -> None:
    num_here = num_ranks if hosts is None else hosts.num_ranks_of_a_host(num_ranks)
    at: dict[str, Any] = {} if hosts is None else {"_node_ip_address": hosts.host}
    with nullcontext() if hosts is None else hosts.head_port_told():
        _init(
            ray,
            "Ray cannot be started here",
            address="local",
            num_cpus=0,  # Ray would start as many Pythons in advance
            resources={RANK_RESOURCE: float(num_here)},
            include_dashboard=False,
            object_store_memory=_STORE_BYTES,
            _temp_dir=str(folder.path),
            _system_config=_OF_OUR_OWN,
            **at,
        )


def _init(ray: Any, failure: str, **arguments: Any) -> None:
    """Code is found by name in the workers: where this package is here, or is installed there."""
    root = str(Path(cluster.__path__[0]).parent)
    try:
        ray.init(
            namespace=NAMESPACE,
            log_to_driver=forwards_logs(),
            logging_level=logging.ERROR,
            job_config=ray.job_config.JobConfig(code_search_path=[root]),
            **arguments,
        )
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as cause:
        raise ConfigError(f"{failure}: {cause}", param="ray_address") from cause
    if not forwards_logs():
        ray._private.worker.print_to_stdstream = _told


def _told(data: dict[str, Any], ignore_prefix: bool) -> None:
    """What raylets say of workers and nodes that died, which Ray would print to standard output:
    pages, of which the first sentence is news."""
    for text in data.get("lines", ()):
        _log.info("said by Ray", text=str(text).partition("\n")[0].partition(". ")[0])


def check_somebody_listens(address: str) -> None:
    """Ray would try for a minute, and then say less. Raises ConfigError."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise ConfigError(
            f"the Ray cluster's address is {address!r}; write host:port of its head, as `ray start "
            "--head` prints it",
            param="ray_address",
        )
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWER_TIMEOUT_S).close()
    except OSError as cause:
        raise ConfigError(
            f"no Ray cluster answers at {address}: {cause}; start one with `ray start --head`, or "
            "leave out --ray-address for a Ray of our own",
            param="ray_address",
        ) from cause


@contextmanager
def _termination_is_ours() -> Iterator[None]:
    """Ray sets a handler for SIGTERM that ends the process on the spot."""
    handler = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
