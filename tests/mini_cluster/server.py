"""The API on a port of its own, with TLS, and kubeconfig files for those who may call it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trustme
import uvicorn
import yaml

from tests.mini_cluster.api import Api, Logs
from tests.mini_cluster.apply import Manager
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.resources import Resources
from tests.mini_cluster.writes import Writes

_HOST = "127.0.0.1"
_NAMESPACES = ("default", "kube-system")


class ApiServer:
    """An API with its store and its address. `folder` holds the certificates."""

    def __init__(self, store: ObjectStore, folder: Path, logs: Logs | None = None) -> None:
        """Takes a port; `serving` answers on it. The namespaces of every cluster are made."""
        self.api = Api(store, logs)
        self.authority_file = folder / "ca.pem"
        self._folder = folder
        self._socket = _listening_socket()
        for name in _NAMESPACES:
            _make_namespace(store, name)

    @property
    def url(self) -> str:
        return f"https://{_HOST}:{self._socket.getsockname()[1]}"

    def kubeconfig(self, token: str = "", namespace: str = "default") -> Path:
        """Writes one for a token's owner; "": the administrator's."""
        token = token or self.api.access.administrator_token
        cluster = {"server": self.url, "certificate-authority": str(self.authority_file)}
        context = {"cluster": "mini", "user": "caller", "namespace": namespace}
        made = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "mini",
            "clusters": [{"name": "mini", "cluster": cluster}],
            "contexts": [{"name": "mini", "context": context}],
            "users": [{"name": "caller", "user": {"token": token}}],
        }
        path = self._folder / f"kubeconfig-{token[:12]}-{namespace}.yaml"
        path.write_text(yaml.safe_dump(made))
        return path

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """On the running loop, which is the store's as well. Watches end with the block."""
        server = uvicorn.Server(self._config())
        answering = asyncio.ensure_future(server.serve(sockets=[self._socket]))
        try:
            yield
        finally:
            server.should_exit = True
            await answering

    def _config(self) -> uvicorn.Config:
        authority = trustme.CA()
        made = authority.issue_cert(_HOST, "localhost", "kubernetes.default.svc")
        authority.cert_pem.write_to_path(str(self.authority_file))
        pair = self._folder / "server.pem"
        made.private_key_and_cert_chain_pem.write_to_path(str(pair))
        return uvicorn.Config(
            self.api.app,
            ssl_certfile=str(pair),
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            timeout_graceful_shutdown=0,
        )


def _listening_socket() -> socket.socket:
    """Said to be TCP's: asyncio sends at once on such alone, else each answer waits 40 ms."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.bind((_HOST, 0))
    made.listen()
    return made


def _make_namespace(store: ObjectStore, name: str) -> None:
    resource = Resources(store).find("v1", "namespaces")
    assert resource is not None
    writes = Writes(store, resource, "", Manager("kube-apiserver", "Update"))
    writes.create({"metadata": {"name": name}})
