"""How a process comes to others of its fleet over gRPC, and what their failures are to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from cluster.errors import SplitserveError, WorkerLost
from cluster.rpc import error_of, open_channel
from cluster.tls.channels import SecureChannels
from cluster.tls.faults import tls_fault
from cluster.tls.fleet import FLEET_NAME, fleet_certificates

Reply = TypeVar("Reply")


class FleetWay:
    """How this process comes to others of its fleet."""

    def __init__(self, token: str | None) -> None:
        self._token = token
        self._certificates = fleet_certificates()
        self._secure: SecureChannels | None = None
        if self._certificates is not None:
            self._secure = SecureChannels(self._certificates, FLEET_NAME)

    def open(self, address: str) -> grpc.aio.Channel:
        """The caller closes it."""
        return open_channel(address, token=self._token, secure=self._secure)

    def error_of(self, failure: grpc.aio.AioRpcError, address: str) -> SplitserveError:
        """What a failed call has met; a certificate at fault comes first."""
        error = error_of(failure)
        if self._certificates is None or not isinstance(error, WorkerLost):
            return error
        fault = tls_fault(error.message, address, self._certificates)
        return error if fault is None else WorkerLost(f"{fault} ({error.message})")


class TypedCalls(AbstractContextManager[None]):
    """What gRPC raises becomes our own; one for a link and all of its messages.

    A CancelledError is the caller's only if the caller is being cancelled: gRPC raises one as well
    when a call or its channel was closed beside it.
    """

    def __init__(self, address: str, way: FleetWay) -> None:
        self._address = address
        self._way = way

    async def ask(
        self, method: Callable[..., Awaitable[Reply]], request: Message, timeout_s: float | None
    ) -> Reply:
        """One message, and its one reply. `method`: of a stub; `timeout_s`: None for no limit."""
        with self:
            return await method(request, timeout=timeout_s)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(failure, grpc.aio.AioRpcError):
            raise self._way.error_of(failure, self._address) from failure
        if isinstance(failure, (grpc.aio.UsageError, asyncio.InvalidStateError)):
            raise WorkerLost(f"the connection to {self._address} is closed") from failure
        if isinstance(failure, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                raise WorkerLost(f"the connection to {self._address} was closed") from failure
