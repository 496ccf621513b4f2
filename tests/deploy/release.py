"""A release of the chart on a mini cluster, and clients of its Service."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from cluster.home import default_home
from tests.deploy.chart import CHART, Manifest
from tests.mini_cluster.cluster import MiniCluster
from tests.mini_cluster.history import Object
from tests.patience import PATIENCE

NAME = "llm"
CLAIM = "models"
"""Of this machine's cache of models, in which the tests' model lies."""
VALUES: Manifest = {
    "model": {"cache": {"claim": CLAIM}, "options": {"dtype": "float32"}},
    "worker": {"options": {"maxContextTokens": 2048, "kvMemoryBytes": 400 * 2**20}},
}
CHANGE_S = 240 * PATIENCE
IN_TIME = ("--timeout", f"{CHANGE_S:.0f}s")
"""Of helm and kubectl, until pods are ready."""
_LAST_LINES = "15"
_INSTALL = ("--wait", *IN_TIME, "--values", "-")


@dataclass(frozen=True)
class Release:
    """Of the name `llm`, in the namespace `default`."""

    cluster: MiniCluster

    def install(self, values: Manifest = VALUES) -> None:
        """Returns when all pods are ready."""
        self.claim()
        with self.pods_told():
            self.cluster.helm("install", NAME, str(CHART), *_INSTALL, stdin=json.dumps(values))

    def claim(self) -> None:
        """Of the cache of models, which a release only uses."""
        claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}}
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(made | {"spec": claim}))

    def upgrade(self, values: Manifest) -> None:
        """Returns when all pods are of the new values, and ready."""
        with self.pods_told():
            self.cluster.helm("upgrade", NAME, str(CHART), *_INSTALL, stdin=json.dumps(values))

    def rollout(self, deployment: str) -> None:
        """Returns when all pods of it are as wanted, and ready."""
        with self.pods_told():
            words = ("rollout", "status", f"deployment/{NAME}-{deployment}", *IN_TIME)
            self.cluster.kubectl(*words)

    @contextmanager
    def pods_told(self) -> Iterator[None]:
        """What fails within says how all pods are, too, and what those have said that are not
        ready."""
        try:
            yield
        except AssertionError as failure:
            pods = json.loads(self.cluster.kubectl("get", "pods", "-o", "json"))["items"]
            told = "\n".join(map(self._told, pods))
            raise AssertionError(f"{failure}\n{told}") from failure

    def _told(self, pod: Object) -> str:
        name, status = pod["metadata"]["name"], pod.get("status", {})
        conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
        if conditions.get("Ready") == "True":
            return f"{name}: ready"
        done = self.cluster.run("kubectl", "logs", name, "--tail", _LAST_LINES)
        return f"{name}: {json.dumps(status)}\n{done.stdout}{done.stderr}"

    def get(self, resource: str, name: str) -> Object:
        return self.cluster.call(lambda: self.cluster.store.get(resource, "default", name))

    def pods(self, component: str) -> list[str]:
        """Names of all pods of a component."""
        words = ("get", "pods", "-o", "name", "-l", f"app.kubernetes.io/component={component}")
        return self.cluster.kubectl(*words).split()

    def staying(self, component: str) -> list[Object]:
        """A component's pods that nobody has asked to leave."""
        words = ("get", "pods", "-o", "json", "-l", f"app.kubernetes.io/component={component}")
        pods: list[Object] = json.loads(self.cluster.kubectl(*words))["items"]
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def nodes(self) -> set[str]:
        """On which pods are that nobody has asked to leave."""
        components = ("router", "prefill-worker", "decode-worker")
        return {pod["spec"]["nodeName"] for each in components for pod in self.staying(each)}

    def drain(self, node: str) -> None:
        """Returns when the node is cordoned, and nothing of the release is on it any more."""
        words = ("drain", node, "--delete-emptydir-data", "--ignore-daemonsets", *IN_TIME)
        said = self.cluster.kubectl(*words)
        assert f"node/{node} cordoned" in said or f"node/{node} already cordoned" in said
        assert node not in self.nodes()

    def uncordon(self, node: str) -> None:
        """Returns when all pods are ready, wherever they are."""
        self.cluster.kubectl("uncordon", node)
        for deployment in ("router", "prefill", "decode"):
            self.rollout(deployment)

    def members_at_routers(self) -> list[dict[str, int]]:
        """By role, as each router that has an address and is not going counts its workers."""
        return [_members_at(pod["status"].get("podIP", "")) for pod in self.staying("router")]

    def api_key(self) -> str:
        """That the release made."""
        return base64.b64decode(self.get("secrets", f"{NAME}-api-keys")["data"]["key"]).decode()

    def client(self) -> httpx.AsyncClient:
        """Of the Service, with the key that the release made. Each request has a connection of its
        own, since a Service shares out connections."""
        address = self.get("services", NAME)["spec"]["clusterIP"]
        headers = {"Authorization": f"Bearer {self.api_key()}", "Connection": "close"}
        return httpx.AsyncClient(
            base_url=f"http://{address}:8000", headers=headers, timeout=120, trust_env=False
        )


def _members_at(address: str) -> dict[str, int]:
    """Empty where nobody answers."""
    try:
        page = httpx.get(f"http://{address}:9400/metrics", trust_env=False).text
    except httpx.HTTPError:
        return {}
    found = re.findall(r'^splitserve_members\{role="(\w+)"\} ([0-9]+)', page, re.MULTILINE)
    return {role: int(number) for role, number in found}


def model_cache() -> Manifest:
    """The claims that a cluster gets from its machine."""
    return {CLAIM: default_home()}
