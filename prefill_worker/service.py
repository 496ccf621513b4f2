"""PrefillWorker: handshakes, and streams that are leases.

The blocks of a request are pinned while its stream lives. `ReleaseExport` is sent in a `finally`,
so a cancelled call, a passed deadline, a broken connection and a server stop all free them at once.
"""

from __future__ import annotations

import grpc

from cluster.adapter import check_digest
from cluster.config import WorkerOptions
from cluster.deadline import Deadline
from cluster.errors import ConfigError, SplitserveError, status_of
from cluster.generation import Usage
from cluster.identity import OWNER_BYTES
from cluster.logs import bind_request, get_logger
from cluster.rpc import RpcServer, abort
from cluster.tracing.context import context_from_wire
from cluster.tracing.tracing import Tracing
from cluster.wire import begun_from_wire, sampling_from_wire
from cluster.world import World
from engine.contract.commands import GenerateRequest, PrefillMode, ReleaseExport
from prefill_worker.export_stream import ExportStream
from prefill_worker.pooling import pool
from prefill_worker.request_spans import send_spans
from protos import handoff_pb2, handoff_pb2_grpc
from worker.admission import MAX_REQUEST_ID_CHARS
from worker.engine.link import LifeSign
from worker.exchange.cache_exports import check_request, deadline_of
from worker.exchange.keeper import CacheKeeper
from worker.metrics import WorkerMetrics
from worker.role import RunningWorker
from worker.worker_process import run_worker

SERVICE = "splitserve.worker.v1.PrefillWorker"
_log = get_logger("prefill_worker")


class PrefillWorker(handoff_pb2_grpc.PrefillWorkerServicer):
    """A RoleService; see there."""

    entry_module = "prefill_worker.engine_process"

    def __init__(self, world: World) -> None:
        self._clock = world.clock
        self._keeper = CacheKeeper(world)
        self._worker: RunningWorker | None = None
        self._exports: dict[ExportStream, None] = {}

    def register(self, server: RpcServer) -> None:
        """See RoleService."""
        server.add(handoff_pb2_grpc.add_PrefillWorkerServicer_to_server, self, SERVICE)
        self._keeper.register(server)

    def open(self, worker: RunningWorker) -> None:
        """See RoleService."""
        if worker.ready.peer is None:
            raise ConfigError("this engine cannot export KV blocks; choose another kv_transport")
        self._worker = worker
        self._keeper.open(worker, self._keeper.peers_of(worker))
        worker.engine.on_life(self._engine_lives)

    async def close(self) -> None:
        """The streams end with their readers, or with the engine."""
        await self._keeper.close()

    async def Handshake(
        self, request: handoff_pb2.HandshakeRequest, context: grpc.aio.ServicerContext
    ) -> handoff_pb2.HandshakeResponse:
        """See CacheExports."""
        return await self._keeper.exports.shake_hands(request, context)

    async def Prefill(
        self,
        request: handoff_pb2.PrefillRequest,
        context: grpc.aio.ServicerContext[handoff_pb2.PrefillRequest, handoff_pb2.PrefillEvent],
    ) -> None:
        """Computes and exports a prompt; returns when the request ends or the reader leaves. What
        is cached goes without being a prompt of this worker: it is counted as nothing else than
        tokens handed on."""
        with bind_request(request.request_id[:MAX_REQUEST_ID_CHARS]):
            if request.cached_only:
                await self._keeper.exports.serve(request, context)
                return
            try:
                worker, _ = self._keeper.exports.opened()
                check_request(request, worker)
                with worker.lifespan.admit():
                    await self._export(request, worker, context)
            except SplitserveError as error:
                _log.warning(
                    "a prompt could not be computed; its decode worker is told", error=error.message
                )
                self._count_failure(error)
                await abort(context, error)

    async def Pool(
        self,
        request: handoff_pb2.PoolRequest,
        context: grpc.aio.ServicerContext[handoff_pb2.PoolRequest, handoff_pb2.PoolResponse],
    ) -> handoff_pb2.PoolResponse:
        """Computes a prompt for what its hidden states make; a caller that leaves ends it."""
        with bind_request(request.request_id[:MAX_REQUEST_ID_CHARS]):
            try:
                worker, _ = self._keeper.exports.opened()
                with worker.lifespan.admit():
                    return await pool(request, worker, context, self._clock)
            except SplitserveError as error:
                _log.warning(
                    "a prompt could not be pooled; its router is told", error=error.message
                )
                self._count_failure(error)
                await abort(context, error)

    def _count_failure(self, error: SplitserveError) -> None:
        if self._worker is not None:
            self._worker.metrics.request_ended(status_of(error).code, Usage(0, 0, 0), None)

    async def _export(
        self,
        request: handoff_pb2.PrefillRequest,
        worker: RunningWorker,
        context: grpc.aio.ServicerContext[handoff_pb2.PrefillRequest, handoff_pb2.PrefillEvent],
    ) -> None:
        """Ends by an error, by the reader (its cancellation, or a write on its broken connection),
        or when the first token was the last one."""
        deadline = deadline_of(context, self._clock)
        body = _to_engine(request, worker.engine.name_for(request.request_id), deadline)
        export = ExportStream(
            first_block=request.first_block,
            num_blocks=-(-body.num_known_tokens // worker.pairing.block_size_tokens),
            num_choices=len(body.choices),
            clock=self._clock,
        )
        self._exports[export] = None
        try:
            worker.engine.submit(body, export)
            await _relay(export, context)
        except SplitserveError:
            raise
        except BaseException:
            _note_release(export, worker.metrics, body.num_known_tokens)
            raise
        else:
            _note_release(export, worker.metrics, body.num_known_tokens)
        finally:
            del self._exports[export]
            worker.engine.send(ReleaseExport(body.request_id))
            if worker.tracing is not None and request.HasField("trace"):
                self._trace(worker.tracing, request, export)

    def _trace(
        self, tracing: Tracing, request: handoff_pb2.PrefillRequest, export: ExportStream
    ) -> None:
        if (context := context_from_wire(request.trace)) is not None:
            send_spans(tracing.part(context), export, request, self._clock())

    def _engine_lives(self, sign: LifeSign) -> None:
        if self._worker is not None:
            for export in self._exports:
                export.engine_lives(self._worker.engine.load, sign)


async def _relay(
    export: ExportStream,
    context: grpc.aio.ServicerContext[handoff_pb2.PrefillRequest, handoff_pb2.PrefillEvent],
) -> None:
    """Returns when nothing is pinned for the reader any more; raises what ended the export."""
    while (message := await export.next_message()) is not None:
        await context.write(message)
    await export.wait_ended()


def _note_release(export: ExportStream, metrics: WorkerMetrics, num_prompt_tokens: int) -> None:
    outcome = "done" if export.is_done else "abandoned"
    usage = Usage(num_prompt_tokens, int(export.is_done), export.cached_tokens)
    timing = export.timing
    metrics.handoff_ended(outcome)
    metrics.request_ended("ok" if export.is_done else "cancelled", usage, timing)
    _log.info(
        "the blocks of a prompt are released",
        outcome=outcome,
        prompt_tokens=num_prompt_tokens,
        cached_tokens=export.cached_tokens,
        queue_ms=round(timing.queue_ms, 2) if timing else None,
        prefill_ms=round(timing.prefill_ms, 2) if timing else None,
    )


def _to_engine(
    request: handoff_pb2.PrefillRequest, engine_id: str, deadline: Deadline
) -> GenerateRequest:
    return GenerateRequest(
        request_id=engine_id,
        token_ids=list(request.token_ids),
        sampling=sampling_from_wire(request.sampling),
        cache_root=request.cache_root,
        mode=PrefillMode.EXPORT,
        first_block=request.first_block,
        digest_tokens=request.digest_tokens,
        timeout_ms=deadline.remaining_ms,
        resume=[begun_from_wire(request.resume)] if request.HasField("resume") else [],
        adapter=check_digest(request.adapter) if request.adapter else "",
        owner=request.owner[:OWNER_BYTES],
    )


def run(options: WorkerOptions) -> int:
    """Serves until a signal or the engine's death; the process's exit code."""
    world = World()
    return run_worker(options, PrefillWorker(world), world)
