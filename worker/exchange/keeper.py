"""The PrefixCache service of a worker of either role: it hands on what it has, and takes over."""

from __future__ import annotations

import asyncio

import grpc

from cluster.adapter import check_digest
from cluster.block_hash import NAME_BYTES
from cluster.deadline import MAX_TIMEOUT_S, Deadline
from cluster.errors import InvalidRequest, NotReady, SplitserveError
from cluster.logs import get_logger
from cluster.process.background import Background, nothing_needed
from cluster.rpc import RpcServer, abort
from cluster.sampling import SamplingParams
from cluster.worker_identity import WorkerIdentity
from cluster.world import World
from engine.contract.commands import GenerateRequest, PrefillMode
from protos import worker_pb2, worker_pb2_grpc
from worker.admission import check_prefix
from worker.exchange.cache_exports import CacheExports, check_incarnation
from worker.exchange.hand_on import LeavingCache, hand_on
from worker.exchange.prefill_peers import PrefillPeers
from worker.exchange.prefill_target import PrefillTarget
from worker.exchange.promised_room import PromisedRoom
from worker.exchange.take_over import TakenPrefix, TakeOver
from worker.role import RunningWorker

SERVICE = "splitserve.worker.v1.PrefixCache"
_NOTHING = SamplingParams(max_tokens=1)
_log = get_logger("worker.exchange")


class CacheKeeper(worker_pb2_grpc.PrefixCacheServicer):
    """A part of a RoleService, with its obligations. `exports`: for the role's own service, which
    is where readers ask."""

    def __init__(self, world: World) -> None:
        self.exports = CacheExports(world.clock)
        self._world = world
        self._background = Background(nothing_needed, clock=world.clock, sleep=world.sleep)
        self._own_peers: PrefillPeers | None = None
        self._opened: tuple[RunningWorker, PrefillPeers] | None = None
        self._handing_on = asyncio.Lock()
        self._room = PromisedRoom(world.clock)

    def register(self, server: RpcServer) -> None:
        """Calls are refused with NotReady until `open`."""
        server.add(worker_pb2_grpc.add_PrefixCacheServicer_to_server, self, SERVICE)

    def peers_of(self, worker: RunningWorker) -> PrefillPeers:
        """For a role that has none: one engine knows each process once."""
        we = WorkerIdentity(worker.key, worker.pairing)
        self._own_peers = PrefillPeers(we, worker.engine.send, self._world.dialer, self._background)
        return self._own_peers

    def open(self, worker: RunningWorker, peers: PrefillPeers) -> None:
        """From now on it answers."""
        self._opened = worker, peers
        self.exports.open(worker)

    async def close(self) -> None:
        """Idempotent."""
        if self._own_peers is not None:
            self._own_peers.close()
        await self._background.close()

    async def HandOn(
        self, request: worker_pb2.HandOnRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.HandOnReport:
        """Bounded by the call's deadline. One at a time: of a second order at once, all that the
        first has handed on is known where it went."""
        try:
            worker, _ = self._must_be_open()
            check_incarnation(request.source.incarnation, worker.key)
            async with self._handing_on:
                report = await hand_on(
                    await _cache_of(worker),
                    request,
                    self._world.dialer,
                    self._deadline_of(context),
                    self._world.clock,
                )
        except SplitserveError as error:
            await abort(context, error)
        worker.metrics.prefixes_moved("out", sum(each.handed_tokens for each in report.receivers))
        return report

    async def TakeOver(
        self, request: worker_pb2.TakeOverRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.TakeOverReport:
        """What is verified by the call's deadline stays cached."""
        try:
            worker, peers = self._must_be_open()
            with worker.lifespan.admit():
                taken = await self._take_over(request, worker, peers, self._deadline_of(context))
        except SplitserveError as error:
            await abort(context, error)
        return worker_pb2.TakeOverReport(
            handed_tokens=taken.handed_tokens,
            known_tokens=taken.known_tokens,
            num_bytes=taken.num_bytes,
        )

    async def _take_over(
        self,
        request: worker_pb2.TakeOverRequest,
        worker: RunningWorker,
        peers: PrefillPeers,
        deadline: Deadline,
    ) -> TakenPrefix:
        body = _to_engine(request, worker, deadline)
        size = worker.pairing.block_size_tokens
        target = PrefillTarget.from_wire(request.source)
        with self._room.lease(len(body.token_ids) // size, worker.engine.load) as lease:
            taking = TakeOver(body, size, lease, worker.engine.send)
            worker.engine.submit(body, taking)
            try:
                return await taking.run(target, peers, deadline)
            finally:
                _note(taking.taken, target, worker)

    def _must_be_open(self) -> tuple[RunningWorker, PrefillPeers]:
        if self._opened is None:
            raise NotReady("this worker is still loading")
        return self._opened

    def _deadline_of(self, context: grpc.aio.ServicerContext) -> Deadline:
        """A little before the caller's, who is to hear how far it went."""
        remaining_s = context.time_remaining()
        limit_s = MAX_TIMEOUT_S if remaining_s is None else min(remaining_s, MAX_TIMEOUT_S)
        return Deadline.after(limit_s * 0.95, self._world.clock)


async def _cache_of(worker: RunningWorker) -> LeavingCache:
    peer, size = worker.ready.peer, worker.pairing.block_size_tokens
    if peer is None:
        raise NotReady("this engine exports no blocks")
    parts = peer.ranks[:1] if peer.shares_blocks else peer.ranks
    return LeavingCache(
        warm=await worker.engine.warm(),
        block_size=size,
        block_bytes=sum(rank.block_bytes for rank in parts),
    )


def _to_engine(
    request: worker_pb2.TakeOverRequest, worker: RunningWorker, deadline: Deadline
) -> GenerateRequest:
    """Of whole blocks. Raises InvalidRequest and ContextTooLong."""
    size = worker.pairing.block_size_tokens
    num_blocks = len(request.token_ids) // size
    check_prefix(
        request.token_ids[: num_blocks * size],
        max_context_tokens=worker.ready.max_context_tokens,
    )
    if len(request.cache_root) != NAME_BYTES:
        raise InvalidRequest(f"cache_root has {len(request.cache_root)} bytes, not {NAME_BYTES}")
    return GenerateRequest(
        request_id=worker.engine.name_for("take-over"),
        token_ids=list(request.token_ids[: num_blocks * size]),
        sampling=_NOTHING,
        cache_root=request.cache_root,
        mode=PrefillMode.KEEP,
        adapter=check_digest(request.adapter) if request.adapter else "",
        timeout_ms=deadline.remaining_ms,
    )


def _note(taken: TakenPrefix, source: PrefillTarget, worker: RunningWorker) -> None:
    worker.metrics.prefixes_moved("in", taken.handed_tokens)
    _log.info(
        "a cached prefix is taken over",
        source=source.key.worker_id,
        handed_tokens=taken.handed_tokens,
        known_tokens=taken.known_tokens,
        num_bytes=taken.num_bytes,
    )
