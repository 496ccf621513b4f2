"""A release of the chart on a mini cluster, and clients of its Service."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass

import httpx

from cluster.home import default_home
from tests.deploy.chart import CHART, Manifest
from tests.mini_cluster.cluster import MiniCluster
from tests.mini_cluster.history import Object

NAME = "llm"
CLAIM = "models"
"""Of this machine's cache of models, in which the tests' model lies."""
VALUES: Manifest = {
    "model": {"cache": {"claim": CLAIM}, "options": {"dtype": "float32"}},
    "worker": {"options": {"maxContextTokens": 2048, "kvMemoryBytes": 400 * 2**20}},
}
_INSTALL = ("--wait", "--timeout", "4m", "--values", "-")


@dataclass(frozen=True)
class Release:
    """Of the name `llm`, in the namespace `default`."""

    cluster: MiniCluster

    def claim(self) -> None:
        """Asks for the cache of models, which pods beside the release's may have too."""
        claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}}
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(made | {"spec": claim}))

    def install(self, values: Manifest = VALUES) -> None:
        """Returns when all pods are ready."""
        self.claim()
        self.cluster.helm("install", NAME, str(CHART), *_INSTALL, stdin=json.dumps(values))

    def upgrade(self, values: Manifest) -> None:
        """Returns when all pods are of the new values, and ready."""
        self.cluster.helm("upgrade", NAME, str(CHART), *_INSTALL, stdin=json.dumps(values))

    def get(self, resource: str, name: str) -> Object:
        return self.cluster.call(lambda: self.cluster.store.get(resource, "default", name))

    def pods(self, component: str) -> list[str]:
        """Names of all pods of a component."""
        words = ("get", "pods", "-o", "name", "-l", f"app.kubernetes.io/component={component}")
        return self.cluster.kubectl(*words).split()

    def members_at_routers(self) -> list[dict[str, int]]:
        """By role, as each router that has an address and is not going counts its workers."""
        words = ("get", "pods", "-o", "json", "-l", "app.kubernetes.io/component=router")
        pods = json.loads(self.cluster.kubectl(*words))["items"]
        staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return [_members_at(pod["status"].get("podIP", "")) for pod in staying]

    def client(self) -> httpx.AsyncClient:
        """Of the Service, with the key that the release made. Each request has a connection of its
        own, since a Service shares out connections."""
        address = self.get("services", NAME)["spec"]["clusterIP"]
        key = base64.b64decode(self.get("secrets", f"{NAME}-api-keys")["data"]["key"]).decode()
        headers = {"Authorization": f"Bearer {key}", "Connection": "close"}
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
