"""DecodeWorker: one session per router, and the role's part of a worker process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc

from cluster.errors import NotReady
from cluster.logs import get_logger
from cluster.rpc import RpcServer, abort
from decode_worker.decode_request import DecodeParts
from decode_worker.prefill_peers import PrefillPeers
from decode_worker.session import Session
from engine.contract.messages import Frame
from protos import worker_pb2, worker_pb2_grpc
from worker.role import RunningWorker

SERVICE = "splitserve.worker.v1.DecodeWorker"
_log = get_logger("decode_worker")


class DecodeWorker(worker_pb2_grpc.DecodeWorkerServicer):
    """A RoleService; see there."""

    entry_module = "decode_worker.engine_process"

    def __init__(self) -> None:
        self._parts: DecodeParts | None = None
        self._sessions: set[Session] = set()

    def register(self, server: RpcServer) -> None:
        """See RoleService."""
        server.add(worker_pb2_grpc.add_DecodeWorkerServicer_to_server, self, SERVICE)

    def open(self, worker: RunningWorker) -> None:
        """See RoleService."""
        peers = PrefillPeers(worker.key.worker_id, worker.pairing, worker.engine.send)
        self._parts = DecodeParts(worker=worker, peers=peers)
        worker.engine.observe(self._step_done)

    async def close(self) -> None:
        """Writes what is waiting, ends every session and lets go of the prefill workers."""
        for session in self._sessions:
            session.finish()
        if self._parts is not None:
            await self._parts.peers.close()

    async def Session(
        self,
        request_iterator: AsyncIterator[worker_pb2.RouterMessage],
        context: grpc.aio.ServicerContext[worker_pb2.RouterMessage, worker_pb2.WorkerFrame],
    ) -> None:
        """Lives as long as the router keeps its stream open; then cancels what came over it."""
        if self._parts is None:
            await abort(context, NotReady("this decode worker is still loading", retry_after_s=1.0))
        session = Session(self._parts)
        self._sessions.add(session)
        _log.info("session opened", router=context.peer())
        halves = (
            asyncio.create_task(session.read(request_iterator)),
            asyncio.create_task(session.write(context)),
        )
        try:
            await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._sessions.discard(session)
            _log.info("session closed", router=context.peer(), num_cut_off=session.num_requests)
            session.cancel_all()
            for half in halves:
                half.cancel()
            for end in await asyncio.gather(*halves, return_exceptions=True):
                if isinstance(end, Exception):
                    _log.warning("a session broke", router=context.peer(), error=repr(end)[:200])

    def _step_done(self, frame: Frame) -> None:
        for session in self._sessions:
            session.step_done(frame)
