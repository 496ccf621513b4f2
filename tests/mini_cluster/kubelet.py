"""A node: runs the pods that are bound to it, as processes of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from cluster.process.background import Background
from tests.mini_cluster.conditions import condition, merged
from tests.mini_cluster.history import Event, Object
from tests.mini_cluster.pod_run import Node, PodRun

_NODE_INFO = {
    "architecture": "amd64",
    "operatingSystem": "linux",
    "osImage": "this machine",
    "kernelVersion": "its own",
    "kubeletVersion": "v1.37.0",
    "kubeProxyVersion": "",
    "containerRuntimeVersion": "process://1",
    "machineID": "0",
    "systemUUID": "0",
    "bootID": "0",
}
"""All that the schema demands: whoever writes a node (kubectl cordon) has the whole checked."""


class Kubelet:
    """`run` as long as the node is there, `close` ends all its pods at once."""

    def __init__(self, node: Node, new_address: Callable[[], str], tasks: Background) -> None:
        """Pods live in `tasks`, which outlive `close`."""
        self._node = node
        self._new_address = new_address
        self._tasks = tasks
        self._pods: dict[str, PodRun] = {}
        self._living: set[asyncio.Task[None]] = set()

    def register(self, devices: Mapping[str, int]) -> None:
        """Makes the node known; `devices` by their resource's name."""
        node = self._node
        labels = {"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux"}
        labels["kubernetes.io/arch"] = "amd64"  # whatever it is: images are processes here
        made = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.name, "labels": labels},
        }
        node.store.create("nodes", made | {"spec": {}})
        resources = {"cpu": "64", "memory": "512Gi", "pods": "110"}
        resources |= {name: str(count) for name, count in devices.items()}
        ready = condition("Ready", True, "KubeletReady", "kubelet is posting ready status")
        status = {
            "capacity": resources,
            "allocatable": resources,
            "conditions": merged([], [ready], datetime.now(UTC)),
            "addresses": [{"type": "InternalIP", "address": node.address}],
            "nodeInfo": _NODE_INFO,
        }
        node.store.set_status("nodes", "", node.name, status)

    async def run(self) -> None:
        """For ever: begins pods, and asks those to leave that are to go."""
        name = self._node.name
        mine = self._node.store.watch(
            "pods", matches=lambda pod: pod["spec"].get("nodeName") == name
        )
        async for event in mine:
            if event.type != "BOOKMARK":
                self._handle(event)

    def pod(self, uid: str) -> PodRun | None:
        return self._pods.get(uid)

    async def close(self) -> None:
        """Nothing runs any more. Pods stay in the store."""
        for task in self._living:
            task.cancel()
        if self._living:
            await asyncio.wait(self._living)

    def _handle(self, event: Event) -> None:
        pod = event.object
        uid = pod["metadata"]["uid"]
        if uid not in self._pods and event.type != "DELETED":
            self._begin(pod)
        known = self._pods.get(uid)
        if known is not None and event.type == "DELETED":
            known.kill()
        elif known is not None and "deletionTimestamp" in pod["metadata"]:
            known.leave()

    def _begin(self, pod: Object) -> None:
        run = PodRun(self._node, pod, self._new_address())
        self._pods[run.uid] = run
        task = self._tasks.once(f"pod {pod['metadata']['name']}", run.run())
        self._living.add(task)
        task.add_done_callback(self._living.discard)
        task.add_done_callback(lambda _: self._pods.pop(run.uid, None))
