"""WorkerAdmin: a worker's answers to an operator."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass

import grpc

from cluster import VERSION
from cluster.errors import AdapterRefused, SplitserveError
from cluster.generation import EngineLoad
from cluster.identity import Role, WorkerKey
from cluster.logs import get_logger
from cluster.process.lifespan import Lifespan
from cluster.rpc import RpcServer, abort
from cluster.wire import load_to_wire
from protos import worker_pb2, worker_pb2_grpc
from worker.adapters.shelf import AdapterShelf
from worker.engine_view import EngineView

SERVICE = "splitserve.worker.v1.WorkerAdmin"
_log = get_logger("worker")


@dataclass(frozen=True, slots=True)
class AdminSubject:
    """Who is asked about; the engine comes once there is one."""

    key: WorkerKey
    role: Role
    engine: EngineView


class WorkerAdmin(worker_pb2_grpc.WorkerAdminServicer):
    """Status, Drain and Promote. `begin_drain` and `take_place` are called once for each call and
    must be idempotent; `take_place` raises the typed error of a worker that cannot."""

    def __init__(
        self,
        lifespan: Lifespan,
        begin_drain: Callable[[], None],
        take_place: Callable[[], Awaitable[None]],
    ) -> None:
        self._lifespan = lifespan
        self._begin_drain = begin_drain
        self._take_place = take_place
        self._subject: AdminSubject | None = None
        self._shelf: AdapterShelf | None = None

    def has_adapters(self, shelf: AdapterShelf | None) -> None:
        """From now on operators may load and unload some; None: never."""
        self._shelf = shelf

    def register(self, server: RpcServer) -> None:
        """Adds the service to a server that has not started."""
        server.add(worker_pb2_grpc.add_WorkerAdminServicer_to_server, self, SERVICE)

    def open_for(self, subject: AdminSubject) -> None:
        """The engine is being started: from now on answers are about it."""
        self._subject = subject

    async def Status(
        self, request: worker_pb2.StatusRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.StatusResponse:
        """The worker in numbers; with `check_invariants` the engine looks for broken ones."""
        try:
            violations = await self._violations() if request.check_invariants else []
        except SplitserveError as error:
            await abort(context, error)
        return self._status(violations)

    async def Drain(
        self, request: worker_pb2.DrainRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.StatusResponse:
        """Stops admitting; answers when the last request is finished. The process goes on."""
        self._begin_drain()
        await self._lifespan.wait_idle(None)  # the call's deadline cancels this wait
        return self._status([])

    async def Promote(
        self, request: worker_pb2.PromoteRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.StatusResponse:
        """A spare worker takes a place in its fleet; see OwnPlace."""
        try:
            await self._take_place()
        except SplitserveError as error:
            await abort(context, error)
        _log.info("promoted: this worker takes requests")
        return self._status([])

    async def LoadAdapter(
        self, request: worker_pb2.LoadAdapterRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.LoadAdapterResponse:
        """See AdapterShelf."""
        try:
            digest = await self._own_shelf().load(request.name, request.path)
        except SplitserveError as error:
            await abort(context, error)
        return worker_pb2.LoadAdapterResponse(digest=digest)

    async def UnloadAdapter(
        self, request: worker_pb2.UnloadAdapterRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.UnloadAdapterResponse:
        """See AdapterShelf."""
        try:
            is_known = self._own_shelf().unload(request.name)
        except SplitserveError as error:
            await abort(context, error)
        return worker_pb2.UnloadAdapterResponse(known=is_known)

    def _own_shelf(self) -> AdapterShelf:
        if self._shelf is None:
            raise AdapterRefused(
                "this worker loads no adapters, or not yet; start it with --adapters FOLDER"
            )
        return self._shelf

    async def _violations(self) -> list[str]:
        return await self._subject.engine.violations() if self._subject else []

    def _status(self, violations: list[str]) -> worker_pb2.StatusResponse:
        subject = self._subject
        load = subject.engine.load if subject else EngineLoad()
        rank_paces = subject.engine.rank_paces if subject else []
        return worker_pb2.StatusResponse(
            worker_id=subject.key.worker_id if subject else "",
            incarnation=subject.key.incarnation if subject else "",
            role=subject.role if subject else "",
            state=self._lifespan.state,
            load=load_to_wire(load),
            kv_transport=subject.engine.kv_transport if subject else "",
            violations=violations,
            version=VERSION,
            pid=os.getpid(),
            engine_pid=subject.engine.pid if subject else 0,
            uptime_s=self._lifespan.uptime_s,
            rank_paces=[worker_pb2.RankPace(**asdict(pace)) for pace in rank_paces],
        )
