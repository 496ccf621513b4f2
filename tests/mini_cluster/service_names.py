"""The names of Services, as each pod finds them in its /etc/hosts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from tests.mini_cluster.history import Object
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.services import slices_of

_SIZE = 1 << 16


class ServiceNames:
    """One file for all pods. A Service of another namespace has its longer names alone."""

    def __init__(self, path: Path, namespace: str = "default") -> None:
        self.path = path
        self._namespace = namespace
        self._written = b""
        self._write([])

    def reconcile(self, store: ObjectStore, now: datetime) -> None:
        self._write(
            [line for service in store.select("services") for line in self._lines(store, service)]
        )

    def _write(self, lines: list[str]) -> None:
        """In place, since it is mounted; in one call and of one size, so that a reader sees the old
        lines or the new ones."""
        text = "\n".join(["127.0.0.1 localhost", *lines]).encode().ljust(_SIZE, b"\n")
        if text == self._written:
            return
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(file, text, 0)
        os.close(file)
        self._written = text

    def _lines(self, store: ObjectStore, service: Object) -> Iterator[str]:
        names = self._names(service["metadata"])
        address = service["spec"].get("clusterIP", "")
        if address not in ("", "None"):
            yield f"{address} {' '.join(names)}"
            return
        metadata = service["metadata"]
        for found in slices_of(store, metadata["namespace"], metadata["name"]):
            for endpoint in found["endpoints"]:
                if endpoint["conditions"]["ready"]:
                    yield from self._endpoint_lines(endpoint, names)

    def _endpoint_lines(self, endpoint: Object, names: list[str]) -> Iterator[str]:
        (address,) = endpoint["addresses"]
        yield f"{address} {' '.join(names)}"
        if "hostname" in endpoint:
            hostname = endpoint["hostname"]
            yield f"{address} {' '.join(f'{hostname}.{name}' for name in names)}"

    def _names(self, metadata: Object) -> list[str]:
        name, namespace = metadata["name"], metadata["namespace"]
        longer = [f"{name}.{namespace}", f"{name}.{namespace}.svc"]
        longer.append(f"{name}.{namespace}.svc.cluster.local")
        return [name, *longer] if namespace == self._namespace else longer
