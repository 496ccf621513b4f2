"""A cluster with an API server and pods that are vLLM servers in name, and a way to it that a test
cuts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cluster.process.background import cancel
from cluster.world import World
from router.vllm.allowed_hosts import AllowedHosts
from router.vllm.pods.api_server import PodsApi
from router.vllm.pods.discovery import PodDiscovery
from router.vllm.pods.selection import pod_selection
from router.vllm.server_address import VllmAddress
from tests.mini_cluster.history import Object
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.server import ApiServer
from tests.router.front_fakes import until

NAMESPACE = "default"
_RBAC = "rbac.authorization.k8s.io"
_RESOURCES = {
    "ServiceAccount": "serviceaccounts",
    "Role": f"roles.{_RBAC}",
    "RoleBinding": f"rolebindings.{_RBAC}",
}
_READY = [{"type": "Ready", "status": "True"}]


class Way:
    """To the API server, by a port of its own. While it is cut nobody is let in."""

    def __init__(self, url: str) -> None:
        self._there = urlsplit(url)
        self._ends: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.is_cut = False
        self.port = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Way]:
        server = await asyncio.start_server(self._through, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await cancel(list(self._tasks))
            self.cut()

    def cut(self) -> None:
        """Whoever is connected is not any more."""
        self.is_cut = True
        for end in self._ends:
            end.transport.abort()

    def mend(self) -> None:
        self.is_cut = False

    async def _through(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ends.add(writer)
        opening = asyncio.current_task()
        assert opening is not None
        self._tasks.add(opening)
        opening.add_done_callback(self._tasks.discard)
        there = await asyncio.open_connection(self._there.hostname, self._there.port)
        self._ends.add(there[1])
        if self.is_cut:
            self.cut()
        for pair in ((reader, there[1]), (there[0], writer)):
            task = asyncio.create_task(_copied(*pair))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _copied(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while piece := await source.read(65_536):
            sink.write(piece)
            await sink.drain()
    except ConnectionError:
        return
    finally:
        sink.transport.abort()


class PodCluster:
    """Pods are made, marked and deleted by a test; nobody runs them."""

    def __init__(self, server: ApiServer, way: Way, folder: Path) -> None:
        self.server, self.way = server, way
        self.store = server.api.store
        self.token_file = folder / "token"
        self.allow("list", "watch")

    def allow(self, *verbs: str) -> None:
        """Of pods, to a new service account, whose token takes the former one's place."""
        metadata = {"name": "router", "namespace": NAMESPACE}
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": list(verbs)}]
        self.install(
            {"kind": "ServiceAccount", "metadata": metadata},
            {"kind": "Role", "metadata": metadata, "rules": rules},
            {
                "kind": "RoleBinding",
                "metadata": metadata,
                "subjects": [{"kind": "ServiceAccount", **metadata}],
                "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": "router"},
            },
        )

    def install(self, *rights: Object) -> None:
        """One service account and what it may, in place of what has these names. Its token is who
        asks from now on."""
        for body in rights:
            metadata = {"namespace": NAMESPACE, **body["metadata"]}
            resource, name = _RESOURCES[body["kind"]], metadata["name"]
            if self.store.find(resource, NAMESPACE, name) is not None:
                self.store.delete(resource, NAMESPACE, name)
            self.store.create(resource, {**body, "metadata": metadata})
        (account,) = (each for each in rights if each["kind"] == "ServiceAccount")
        token = self.server.api.access.token_of(NAMESPACE, account["metadata"]["name"])
        self.token_file.write_text(token)

    def add(self, name: str, address: str, role: str = "", **annotations: str) -> None:
        """A pod that is ready; `role` is its label."""
        labels = {"app": "vllm"} | ({"splitserve/role": role} if role else {})
        metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
        noted = {f"splitserve/{key.replace('_', '-')}": text for key, text in annotations.items()}
        spec = {"nodeName": "node", "containers": [{"name": "vllm", "image": "vllm"}]}
        self.store.create("pods", {"metadata": metadata | {"annotations": noted}, "spec": spec})
        self.set_ready(name, address)

    def set_ready(self, name: str, address: str, *, is_ready: bool = True) -> None:
        conditions = _READY if is_ready else [{"type": "Ready", "status": "False"}]
        status = {"phase": "Running", "podIP": address, "conditions": conditions}
        self.store.set_status("pods", NAMESPACE, name, status)

    def delete(self, name: str, grace_s: int) -> None:
        self.store.delete("pods", NAMESPACE, name, grace_s=grace_s)

    def make_noise(self, num_changes: int) -> None:
        """Of objects that are no pods."""
        for number in range(num_changes):
            metadata = {"namespace": NAMESPACE, "generateName": f"noise-{number}-"}
            self.store.create("configmaps", {"metadata": metadata})

    def words(self) -> str:
        """As `--vllm` takes them."""
        server = f"https://127.0.0.1:{self.way.port}"
        files = f"token={self.token_file}&ca={self.server.authority_file}"
        return f"kubernetes://{NAMESPACE}/app=vllm?port=8000&server={server}&{files}"


class Told:
    """What a discovery tells. It waits for nobody between two tries; how long it would have, is
    kept."""

    def __init__(self, cluster: PodCluster, api: Any = None) -> None:
        """`api`: in place of the cluster's own."""
        selection = pod_selection(cluster.words())
        world = World(sleep=self._sleep)
        api = api or PodsApi(selection)
        self.discovery = PodDiscovery(api, selection, world, AllowedHosts("private"))
        self.addresses: tuple[VllmAddress, ...] | None = None
        self.waits_s: list[float] = []
        self.is_ending = False
        self._rests = False

    @property
    def ids(self) -> list[str]:
        return [address.worker_id for address in self.addresses or ()]

    async def see(self, *ids: str) -> None:
        """Returns when these are told, and no others."""
        wanted = [f"vllm-{each}:8000" for each in ids]
        await until(lambda: self.addresses is not None and self.ids == wanted, f"told: {wanted}")

    async def tries(self, num: int) -> None:
        """Returns after so many more waits."""
        wanted = len(self.waits_s) + num
        await until(lambda: len(self.waits_s) >= wanted, f"{num} tries")

    async def follow(self) -> None:
        async for addresses in self.discovery.servers():
            self.addresses = addresses

    async def end(self, following: asyncio.Task[None]) -> None:
        """Between two calls: httpx loses a socket whose handshake is cancelled."""
        self.is_ending = True
        await until(lambda: self._rests or self.discovery.is_current, "no call is under way")
        await cancel([following])

    async def _sleep(self, delay_s: float) -> None:
        self.waits_s.append(delay_s)
        if self.is_ending:
            self._rests = True
            await asyncio.Event().wait()
        await asyncio.sleep(0.001)


@asynccontextmanager
async def pod_cluster(folder: Path, history_length: int = 5000) -> AsyncIterator[PodCluster]:
    server = ApiServer(ObjectStore(history_length=history_length), folder)
    async with server.serving(), Way(server.url).open() as way:
        yield PodCluster(server, way, folder)
    assert server.api.faults == []


@asynccontextmanager
async def telling(cluster: PodCluster) -> AsyncIterator[Told]:
    told = Told(cluster)
    task = asyncio.create_task(told.follow())
    try:
        yield told
        assert not task.done()
    finally:
        await told.end(task)
