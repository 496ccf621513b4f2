"""gRPC's health service: states that are told when they change, and to nobody's delay.

The servicer of grpc_health holds a lock while it writes to a watcher: one that does not read would
hold up every change of state, and the end of the process.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_Status = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):
    """By service name; "" is the process. All calls from the event loop's thread."""

    def __init__(self) -> None:
        self._states: dict[str, Any] = {}
        self._changed = asyncio.Event()
        self.num_changes = 0
        """How often the watchers were woken."""

    def set(self, name: str, *, serving: bool) -> None:
        """Wakes the watchers where that is news."""
        state = _Status.SERVING if serving else _Status.NOT_SERVING
        if self._states.get(name) == state:
            return
        self._states[name] = state
        self.num_changes += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> Any:
        """The state of one service; NOT_FOUND for one that is not here."""
        state = self._states.get(request.service)
        if state is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        return _Status(status=state)

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:
        """The state, and each later one; what lies between may be left out."""
        told = None
        while True:
            changed = self._changed
            state = self._states.get(request.service, _Status.SERVICE_UNKNOWN)
            if state != told:
                await context.write(_Status(status=state))
                told = state
            await changed.wait()
