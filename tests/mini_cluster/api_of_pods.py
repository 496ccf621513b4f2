"""How a pod reaches the API: where it is, by whom it is known, and a token of the pod's account."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.mini_cluster.apply import Manager
from tests.mini_cluster.history import Object
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.resources import Resources
from tests.mini_cluster.server import ApiServer
from tests.mini_cluster.writes import Writes

_ROOT_CA = "kube-root-ca.crt"


@dataclass(frozen=True, slots=True)
class ApiOfPods:
    """Of one cluster."""

    url: str
    new_token: Callable[[str, str], str]
    """Of a namespace's service account."""

    @classmethod
    def of(cls, server: ApiServer) -> ApiOfPods:
        return cls(server.url, server.api.access.token_of)

    @property
    def environ(self) -> dict[str, str]:
        """Of each container."""
        address = urlsplit(self.url)
        return {
            "KUBERNETES_SERVICE_HOST": str(address.hostname),
            "KUBERNETES_SERVICE_PORT": str(address.port),
        }

    def token_of(self, pod: Object) -> str:
        """A new one, which is as good as any other."""
        account = pod["spec"].get("serviceAccountName", "default")
        return self.new_token(pod["metadata"]["namespace"], account)


def publish_authority(store: ObjectStore, server: ApiServer, namespace: str) -> None:
    """What a controller of every cluster does: pods mount it beside their token."""
    resource = Resources(store).find("v1", "configmaps")
    assert resource is not None
    writes = Writes(store, resource, namespace, Manager("kube-controller-manager", "Update"))
    data = {"ca.crt": server.authority_file.read_text()}
    writes.create({"metadata": {"name": _ROOT_CA}, "data": data})
