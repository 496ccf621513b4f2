"""The vLLM servers of a router, by the processes that answer there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cluster.identity import WorkerKey
from protos import worker_pb2
from router.vllm.server import VllmServer


@dataclass(frozen=True, slots=True)
class ServerPair:
    """Who answers one request."""

    decode: VllmServer
    prefill: VllmServer | None
    """Who computes the prompt for it; None: the decode server itself."""


class VllmServers:
    """Filled by discovery, at most one entry for each address. From the event loop only."""

    def __init__(self) -> None:
        self._servers: dict[str, VllmServer] = {}

    def __len__(self) -> int:
        return len(self._servers)

    def add(self, server: VllmServer) -> None:
        """From now on it may be looked at."""
        self._servers[server.name] = server

    def remove(self, server: VllmServer) -> None:
        """It is not looked at any more; another one at its address stays."""
        if self._servers.get(server.name) is server:
            del self._servers[server.name]

    def find(self, key: WorkerKey) -> VllmServer | None:
        """The server at which that process answers."""
        server = self._servers.get(key.worker_id)
        return server if server is not None and server.is_process(key) else None

    def first_of(self, targets: Iterable[worker_pb2.PrefillTarget]) -> VllmServer | None:
        """Who is to compute a prompt; None: nobody of them is here."""
        for target in targets:
            server = self.find(WorkerKey(target.worker_id, target.incarnation))
            if server is not None:
                return server
        return None
