"""A mini cluster for tests that call real clients: its loop runs in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from tests.mini_cluster.api import Logs
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.server import ApiServer
from tests.patience import PATIENCE
from tests.run_program import output_of, run_program

T = TypeVar("T")
_HELM = "SPLITSERVE_HELM"
"""Where `make test` has put it; kubectl lies beside."""
_TIMEOUT_S = 300.0 * PATIENCE


class MiniCluster:
    """For the test's thread."""

    def __init__(self, server: ApiServer, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self.store = server.api.store
        self._loop = loop

    def call(self, work: Callable[[], T]) -> T:
        """Runs it on the cluster's loop, where the store's calls belong."""

        async def there() -> T:
            return work()

        return self.wait_for(there())

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs it on the cluster's loop, to its end."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT_S)

    def client(self, token: str = "") -> httpx.Client:
        """As the administrator, or a token's owner."""
        token = token or self.server.api.access.administrator_token
        trust = ssl.create_default_context(cafile=str(self.server.authority_file))
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.server.url, verify=trust, headers=headers)

    def kubectl(self, *words: str, stdin: str = "", token: str = "") -> str:
        """What it prints; a failure fails the test with what it says."""
        return output_of(self.run("kubectl", *words, stdin=stdin, token=token))

    def helm(self, *words: str, stdin: str = "") -> str:
        return output_of(self.run("helm", *words, stdin=stdin))

    def run(
        self, name: str, *words: str, stdin: str = "", token: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """helm or kubectl, to its end. `token` "": as the administrator."""
        config = self.server.kubeconfig(token)
        home = config.parent
        environ = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(config)}
        command = [program(name), *words]
        return run_program(command, limit_s=_TIMEOUT_S, stdin=stdin, environ=environ)


def program(name: str) -> str:
    """helm or kubectl. Skips the test where nobody has it."""
    helm = os.environ.get(_HELM)
    path = str(Path(helm).with_name(name)) if helm else name
    found = shutil.which(path) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not here; `make test` fetches it")
    return found


@contextmanager
def mini_cluster(folder: Path, logs: Logs | None = None) -> Iterator[MiniCluster]:
    """API and store; `logs` of whoever runs pods. At the end no request may have met a fault of the
    API's own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="mini cluster", daemon=True)
    thread.start()
    server = ApiServer(ObjectStore(), folder, logs)
    serving = server.serving()
    asyncio.run_coroutine_threadsafe(serving.__aenter__(), loop).result(_TIMEOUT_S)
    try:
        yield MiniCluster(server, loop)
        assert server.api.faults == []
    finally:
        asyncio.run_coroutine_threadsafe(serving.__aexit__(None, None, None), loop).result(
            _TIMEOUT_S
        )
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_TIMEOUT_S)
        loop.close()
