"""The life of one pod on a node: init containers one by one, then all others, then the end."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.mini_cluster.api_of_pods import ApiOfPods
from tests.mini_cluster.claims import ClaimController
from tests.mini_cluster.container_run import ContainerRun
from tests.mini_cluster.history import Object
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.pod_status import status_of_pod
from tests.mini_cluster.runtime import Asked, Container, Runtime
from tests.mini_cluster.volumes import PodVolumes

_LONGEST_END_S = 10.0
_GRACE_S = 30


@dataclass(frozen=True, slots=True)
class Node:
    """What the pods of a node share."""

    name: str
    address: str
    store: ObjectStore
    claims: ClaimController
    api: ApiOfPods
    runtime: Runtime
    folder: Path
    """Of pods' volumes and logs."""
    hosts: Path
    """The names of Services, mounted as /etc/hosts."""


class PodRun:
    """One pod, from its binding to its node until it is gone from the store."""

    def __init__(self, node: Node, pod: Object, address: str) -> None:
        self._node = node
        self._pod = pod
        metadata = pod["metadata"]
        self._key = ("pods", metadata["namespace"], metadata["name"])
        self._folder = node.folder / metadata["uid"]
        pod["status"] = pod.get("status", {}) | {"podIP": address, "hostIP": node.address}
        self._volumes = PodVolumes(node.store, node.claims, node.api, self._folder / "volumes")
        self._init = self._runs("initContainers")
        self._main = self._runs("containers")
        self._is_leaving = asyncio.Event()
        self._began = datetime.now(UTC)

    @property
    def uid(self) -> str:
        uid: str = self._pod["metadata"]["uid"]
        return uid

    def log(self, container: str) -> Path:
        """Of all runs of it, the oldest first. "": of the first container."""
        name = container or self._pod["spec"]["containers"][0]["name"]
        return self._folder / f"{name}.log"

    def leave(self) -> None:
        """It was asked to be gone. Idempotent, does not wait."""
        self._is_leaving.set()

    def kill(self) -> None:
        """It is gone from the store: its processes go at once."""
        self._is_leaving.set()
        for run in (*self._init, *self._main):
            run.kill()

    async def run(self) -> None:
        """Until it is asked to leave, and has left, with all its processes."""
        self._folder.mkdir(parents=True)
        self._report()
        living = asyncio.create_task(self._live(), name=f"pod {self._key[2]}")
        try:
            await self._is_leaving.wait()
            await self._end(self._grace_s())
            await asyncio.wait_for(living, _LONGEST_END_S)
        finally:
            self.kill()
            await asyncio.wait([living])
            shutil.rmtree(self._folder / "volumes", ignore_errors=True)
        self._remove()

    async def _live(self) -> None:
        restart: str = self._pod["spec"].get("restartPolicy", "Always")
        for run in self._init:
            await run.run("Never" if restart == "Never" else "OnFailure")
            if run.exit_code != 0:
                return
        await asyncio.gather(*(run.run(restart) for run in self._main))

    async def _end(self, grace_s: float) -> None:
        """A pod without a grace is gone at once."""
        runs = (*self._init, *self._main)
        await asyncio.gather(*(run.leave(grace_s) for run in runs))

    def _grace_s(self) -> float:
        found = self._node.store.find(*self._key)
        metadata = found["metadata"] if found else {}
        if metadata.get("uid") != self.uid:
            return 0.0
        own: int = self._pod["spec"].get("terminationGracePeriodSeconds", _GRACE_S)
        asked: int = metadata.get("deletionGracePeriodSeconds", own)
        return float(asked)

    def _runs(self, kind: str) -> list[ContainerRun]:
        return [self._run_of(container) for container in self._pod["spec"].get(kind, [])]

    def _run_of(self, container: Object) -> ContainerRun:
        asked = Asked(self._node, self._pod, container, self._volumes, self._folder)
        log = self._folder / f"{container['name']}.log"

        async def start() -> Container:
            return await self._node.runtime.start(asked, log)

        address: str = self._pod["status"]["podIP"]
        return ContainerRun(container, start, address, log, self._report)

    def _report(self) -> None:
        """Writes how it is, unless another pod has its name by now."""
        found = self._node.store.find(*self._key)
        if found is None or found["metadata"]["uid"] != self.uid:
            return
        old = found.get("status", {}) | self._pod["status"]
        new = status_of_pod(found, old, self._init, self._main, self._began)
        self._node.store.set_status(*self._key, new)

    def _remove(self) -> None:
        found = self._node.store.find(*self._key)
        if found is not None and found["metadata"]["uid"] == self.uid:
            self._node.store.delete(*self._key, grace_s=0)
