"""The seam between the process that every worker is and the role that one of them plays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cluster.identity import WorkerKey
from cluster.pairing import Pairing
from cluster.process.lifespan import Lifespan
from cluster.rpc import RpcServer
from cluster.tracing.tracing import Tracing
from engine.contract.messages import Ready
from worker.engine.host import EngineHost
from worker.metrics import WorkerMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningWorker:
    """What a role works with, from the moment the engine is ready."""

    key: WorkerKey
    engine: EngineHost
    ready: Ready
    pairing: Pairing
    lifespan: Lifespan
    metrics: WorkerMetrics
    tracing: Tracing | None = None
    """None: no request is traced."""
    pooling: str = ""
    """As its Member has it."""


class RoleService(Protocol):
    """The gRPC service of one role. Called in this order, each once, from the event loop."""

    @property
    def entry_module(self) -> str:
        """The module that the engine's process runs."""

    def register(self, server: RpcServer) -> None:
        """Adds the service; its calls are refused with NotReady until `open`."""

    def open(self, worker: RunningWorker) -> None:
        """Requests may come. Raises ConfigError when this engine cannot play the role."""

    async def close(self) -> None:
        """Ends what is still open, after the drain and before the server stops; may come
        without `open`."""
