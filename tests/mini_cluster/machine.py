"""What makes a mini cluster run: controllers, nodes, and the way to Services.

    with running_cluster(folder) as cluster:
        cluster.helm("install", ..., "--wait")

Two nodes, both of them this machine. Needs root, for the namespaces of containers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.process.background import Background, Loss
from tests.mini_cluster.api_of_pods import ApiOfPods, publish_authority
from tests.mini_cluster.claims import ClaimController
from tests.mini_cluster.cluster import MiniCluster, mini_cluster
from tests.mini_cluster.controllers import ALL, run_controllers
from tests.mini_cluster.history import Object
from tests.mini_cluster.images import project_images
from tests.mini_cluster.kubelet import Kubelet
from tests.mini_cluster.loopback import Loopback
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.pod_run import Node
from tests.mini_cluster.runtime import Processes, Runtime
from tests.mini_cluster.server import ApiServer
from tests.mini_cluster.service_names import ServiceNames
from tests.mini_cluster.service_proxy import ServiceProxy
from tests.mini_cluster.services import ServiceController

_NODES = ("one", "two")
_LOOK_S = 0.2


class Machine:
    """Of one cluster. `start` and `close` on its loop."""

    def __init__(self, folder: Path, claims: Mapping[str, Path], runtime: Runtime) -> None:
        self._folder = folder
        self._runtime = runtime
        self._claims = ClaimController(folder / "claims", claims)
        self._loopback = Loopback()
        self._names = ServiceNames(folder / "hosts")
        self._kubelets: list[Kubelet] = []
        self._store: ObjectStore
        self.losses: list[Loss] = []
        """What ended and should not have: the cluster does not work any more."""

    async def start(self, server: ApiServer) -> None:
        """Returns when all are under way."""
        store = self._store = server.api.store
        self._api = ApiOfPods.of(server)
        publish_authority(store, server, "default")
        self._tasks = Background(self.losses.append)
        services = ServiceController(self._loopback)
        own = (services.reconcile, self._claims.reconcile, self._names.reconcile)
        self._proxy = ServiceProxy(store, self._tasks)
        for name in _NODES:
            self._add_node(name, store)
        self._tasks.need("controllers", run_controllers(store, (*ALL, *own)))
        self._tasks.need("service proxy", self._proxy.run())

    async def close(self) -> None:
        """Nothing that runs here is left."""
        for kubelet in self._kubelets:
            await kubelet.close()
        await self._proxy.close()
        await self._tasks.close()
        self._loopback.close()

    async def logs(self, namespace: str, name: str, params: Object) -> AsyncIterator[bytes]:
        """What a container of a pod has said, and with `follow` what it says until it is gone."""
        path = self._log_of(namespace, name, params.get("container", ""))
        seen = 0
        while path is not None:
            with contextlib.suppress(FileNotFoundError):
                text = path.read_bytes()
                yield _tail(text[seen:], params.get("tailLines"))
                seen = len(text)
            if params.get("follow") != "true" or self._store.find("pods", namespace, name) is None:
                return
            await asyncio.sleep(_LOOK_S)

    def _log_of(self, namespace: str, name: str, container: str) -> Path | None:
        uid = self._store.get("pods", namespace, name)["metadata"]["uid"]
        runs = [kubelet.pod(uid) for kubelet in self._kubelets]
        return next((run.log(container) for run in runs if run is not None), None)

    def _add_node(self, name: str, store: ObjectStore) -> None:
        folder, address = self._folder / name, self._loopback.node
        own = (self._claims, self._api, self._runtime)
        node = Node(name, address, store, *own, folder, self._names.path)
        kubelet = Kubelet(node, self._loopback.pod, self._tasks)
        kubelet.register({})
        self._tasks.need(f"kubelet {name}", kubelet.run())
        self._kubelets.append(kubelet)


def _tail(text: bytes, lines: str | None) -> bytes:
    return text if lines is None else b"".join(text.splitlines(keepends=True)[-int(lines) :])


@contextmanager
def running_cluster(
    folder: Path, claims: Mapping[str, Path] | None = None, runtime: Runtime | None = None
) -> Iterator[MiniCluster]:
    """`claims`: folders of this machine for claims of storage, by their names; `runtime`: of
    containers, by default processes of this machine. Skips the test where this process may not
    make namespaces."""
    _skip_without_namespaces()
    # A shell's jobs in the background ignore it, and so would a container that has not begun yet.
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    machine = Machine(folder, claims or {}, runtime or Processes(project_images()))
    with mini_cluster(folder, machine.logs) as cluster:
        cluster.wait_for(machine.start(cluster.server))
        try:
            yield cluster
            assert machine.losses == []
        finally:
            cluster.wait_for(machine.close())


def _skip_without_namespaces() -> None:
    if os.geteuid() != 0:
        pytest.skip("containers need namespaces of their own, and those root")
    tried = subprocess.run(
        [
            "unshare",
            "--mount",
            "--pid",
            "--ipc",
            "--uts",
            "--fork",
            "mount",
            "-t",
            "tmpfs",
            "none",
            "/mnt",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode != 0:
        pytest.skip(f"containers need namespaces of their own: {tried.stderr.strip()}")
