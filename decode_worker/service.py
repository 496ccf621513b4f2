"""DecodeWorker: one session per router, and the role's part of a worker process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
from google.protobuf.message import DecodeError

from cluster.config import WorkerOptions
from cluster.deadline import Clock
from cluster.errors import InternalError, InvalidRequest, NotReady, SplitserveError
from cluster.logs import get_logger
from cluster.process.background import Background, nothing_needed, until_one_ends
from cluster.process.own_lateness import SeenTimeout
from cluster.rpc import RpcServer, abort
from cluster.wire import identity_from_wire, identity_to_wire
from cluster.worker_identity import WorkerIdentity
from cluster.world import World
from decode_worker.cached_prefixes import CachedPrefixes
from decode_worker.decode_request import DecodeParts
from decode_worker.session import RouterSession
from engine.contract.messages import Frame
from protos import handoff_pb2_grpc, worker_pb2, worker_pb2_grpc
from worker.exchange.keeper import CacheKeeper
from worker.exchange.prefill_peers import PrefillPeers
from worker.role import RunningWorker
from worker.worker_process import run_worker

SERVICE = "splitserve.worker.v1.DecodeWorker"
PREFIX_SERVICE = "splitserve.worker.v1.PrefillWorker"
FIRST_WORD_TIMEOUT_S = 5.0
"""A router speaks first, and at once."""
_log = get_logger("decode_worker")


class DecodeWorker(worker_pb2_grpc.DecodeWorkerServicer):
    """A RoleService; see there."""

    entry_module = "decode_worker.engine_process"

    def __init__(self, progress_timeout_s: float, world: World) -> None:
        """`progress_timeout_s`: silence after which a prefill worker is given up."""
        self._progress_timeout_s = progress_timeout_s
        self._world = world
        self._background = Background(nothing_needed, clock=world.clock, sleep=world.sleep)
        self._keeper = CacheKeeper(world)
        self._parts: DecodeParts | None = None
        self._sessions: dict[RouterSession, None] = {}

    def register(self, server: RpcServer) -> None:
        """See RoleService."""
        server.add(worker_pb2_grpc.add_DecodeWorkerServicer_to_server, self, SERVICE)
        cached = CachedPrefixes(self._keeper.exports)
        server.add(handoff_pb2_grpc.add_PrefillWorkerServicer_to_server, cached, PREFIX_SERVICE)
        self._keeper.register(server)

    def open(self, worker: RunningWorker) -> None:
        """See RoleService."""
        we = WorkerIdentity(worker.key, worker.pairing)
        self._parts = DecodeParts(
            worker=worker,
            peers=PrefillPeers(we, worker.engine.send, self._world.dialer, self._background),
            background=self._background,
            progress_timeout_s=self._progress_timeout_s,
            world=self._world,
        )
        self._keeper.open(worker, self._parts.peers)
        worker.engine.observe(self._step_done)

    async def close(self) -> None:
        """Writes what is waiting, ends every session and lets go of the prefill workers."""
        for session in self._sessions:
            session.finish()
        if self._parts is not None:
            self._parts.peers.close()
        await self._keeper.close()
        await self._background.close()

    async def Session(
        self,
        request_iterator: AsyncIterator[worker_pb2.RouterMessage],
        context: grpc.aio.ServicerContext[worker_pb2.RouterMessage, worker_pb2.WorkerFrame],
    ) -> None:
        """Lives as long as the router keeps its stream open; then cancels what came over it."""
        router = context.peer()
        try:
            parts = self._opened()
            await _hear_who_is_meant(request_iterator, parts.identity, self._world.clock)
            opened = identity_to_wire(parts.identity)
            await context.write(worker_pb2.WorkerFrame(opened=opened))
            await self._serve(RouterSession(parts), request_iterator, context)
        except SplitserveError as error:
            _log.warning("a router's session is refused", router=router, error=error.message)
            await abort(context, error)
        except DecodeError as error:
            _log.warning("a router's session is refused", router=router, error=repr(error))
            await abort(
                context,
                InvalidRequest(
                    "the message cannot be read; run the same version of splitserve on both"
                ),
            )
        except Exception as error:
            _log.exception("a router's session failed; its requests are cancelled", router=router)
            await abort(
                context,
                InternalError(
                    f"the session failed ({type(error).__name__}); the worker's log says why"
                ),
            )

    def _opened(self) -> DecodeParts:
        if self._parts is None:
            raise NotReady("this decode worker is still loading")
        return self._parts

    async def _serve(
        self,
        session: RouterSession,
        messages: AsyncIterator[worker_pb2.RouterMessage],
        context: grpc.aio.ServicerContext[worker_pb2.RouterMessage, worker_pb2.WorkerFrame],
    ) -> None:
        self._sessions[session] = None
        router = context.peer()
        _log.info("a router has connected", router=router)
        try:
            await until_one_ends(session.read(messages), session.write(context))
        finally:
            del self._sessions[session]
            _log.info(
                "a router has disconnected", router=router, num_cancelled=session.num_requests
            )
            session.cancel_all()

    def _step_done(self, frame: Frame) -> None:
        for session in self._sessions:
            session.step_done(frame)


async def _hear_who_is_meant(
    messages: AsyncIterator[worker_pb2.RouterMessage], we: WorkerIdentity, clock: Clock
) -> None:
    """Reads the first message. Raises WrongWorker or PairingMismatch when it means somebody else,
    and InvalidRequest when it says nothing of the kind."""
    try:
        async with SeenTimeout(FIRST_WORD_TIMEOUT_S, clock):
            first = await anext(messages, worker_pb2.RouterMessage())
    except TimeoutError:
        first = worker_pb2.RouterMessage()
    if not first.HasField("open"):
        raise InvalidRequest("a session begins with `open`: which worker process is meant")
    we.check(meant=identity_from_wire(first.open))


def run(options: WorkerOptions) -> int:
    """Serves until a signal or the engine's death; the process's exit code."""
    world = World()
    role = DecodeWorker(options.peers.prefill_progress_timeout_s, world)
    return run_worker(options, role, world)
