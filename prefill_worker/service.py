"""PrefillWorker: handshakes, and streams that are leases.

The blocks of a request are pinned while its stream lives. `ReleaseExport` is sent in a `finally`,
so a cancelled call, a passed deadline, a broken connection and a server stop all free them at once.
"""

from __future__ import annotations

import grpc

from cluster.config import WorkerOptions
from cluster.deadline import MAX_TIMEOUT_S, Clock, Deadline
from cluster.errors import (
    ConfigError,
    InvalidRequest,
    NotReady,
    SplitserveError,
    WrongWorker,
    status_of,
)
from cluster.generation import Usage
from cluster.granule import UNIT_TOKENS
from cluster.kv_peer import KvPeer
from cluster.logs import bind_request, get_logger
from cluster.pairing import check_pairing
from cluster.rpc import RpcServer, abort
from cluster.tracing.context import context_from_wire
from cluster.tracing.tracing import Tracing
from cluster.wire import (
    begun_from_wire,
    pairing_from_wire,
    pairing_to_wire,
    peer_to_wire,
    sampling_from_wire,
)
from cluster.world import World
from engine.contract.commands import GenerateRequest, PrefillMode, ReleaseExport
from prefill_worker.export_stream import ExportStream
from prefill_worker.request_spans import send_spans
from protos import handoff_pb2, handoff_pb2_grpc
from worker.admission import MAX_REQUEST_ID_CHARS, check_size
from worker.engine.link import LifeSign
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
        self._worker: RunningWorker | None = None
        self._exports: dict[ExportStream, None] = {}

    def register(self, server: RpcServer) -> None:
        """See RoleService."""
        server.add(handoff_pb2_grpc.add_PrefillWorkerServicer_to_server, self, SERVICE)

    def open(self, worker: RunningWorker) -> None:
        """See RoleService."""
        if worker.ready.peer is None:
            raise ConfigError("this engine cannot export KV blocks; choose another kv_transport")
        self._worker = worker
        worker.engine.on_life(self._engine_lives)

    async def close(self) -> None:
        """Nothing to do: the streams end with their readers, or with the engine."""

    async def Handshake(
        self, request: handoff_pb2.HandshakeRequest, context: grpc.aio.ServicerContext
    ) -> handoff_pb2.HandshakeResponse:
        """Refuses a caller whose blocks would differ; the message names both values."""
        try:
            worker, peer = self._opened()
            theirs = pairing_from_wire(request.pairing)
            check_pairing(worker.pairing, theirs, peer=request.worker_id)
        except SplitserveError as error:
            _log.warning(
                "a decode worker's handshake is refused",
                reader=request.worker_id,
                error=error.message,
            )
            await abort(context, error)
        return handoff_pb2.HandshakeResponse(
            pairing=pairing_to_wire(worker.pairing),
            worker_id=worker.key.worker_id,
            incarnation=worker.key.incarnation,
            peer=peer_to_wire(peer),
        )

    async def Prefill(
        self,
        request: handoff_pb2.PrefillRequest,
        context: grpc.aio.ServicerContext[handoff_pb2.PrefillRequest, handoff_pb2.PrefillEvent],
    ) -> None:
        """Computes and exports a prompt; returns when the request ends or the reader leaves."""
        with bind_request(request.request_id[:MAX_REQUEST_ID_CHARS]):
            try:
                worker, _ = self._opened()
                _check(request, worker)
                with worker.lifespan.admit():
                    await self._export(request, worker, context)
            except SplitserveError as error:
                _log.warning(
                    "a prompt could not be computed; its decode worker is told", error=error.message
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
        deadline = _deadline_of(context, self._clock)
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

    def _opened(self) -> tuple[RunningWorker, KvPeer]:
        if self._worker is None or self._worker.ready.peer is None:
            raise NotReady("this prefill worker is still loading")
        return self._worker, self._worker.ready.peer


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


def _check(request: handoff_pb2.PrefillRequest, worker: RunningWorker) -> None:
    key = worker.key
    if request.incarnation != key.incarnation:
        raise WrongWorker(
            f"{key.worker_id} is incarnation {key.incarnation}, not {request.incarnation[:64]}: "
            "it restarted; shake hands again"
        )
    if not request.token_ids:
        raise InvalidRequest("the prompt has 0 tokens; send at least 1", param="token_ids")
    _check_digests(request.digest_tokens, worker.pairing.block_size_tokens)
    check_size(
        request.request_id,
        request.token_ids,
        request.sampling,
        [request.resume] if request.HasField("resume") else [],
        max_context_tokens=worker.ready.max_context_tokens,
    )


def _check_digests(digest_tokens: int, block_size_tokens: int) -> None:
    """Parts of a block are whole 64-bit words, in which they are verified."""
    is_part = digest_tokens % UNIT_TOKENS == 0 and block_size_tokens % max(1, digest_tokens) == 0
    if not is_part and digest_tokens != block_size_tokens:
        raise InvalidRequest(
            f"digest_tokens is {digest_tokens}; blocks here have {block_size_tokens} tokens, of "
            f"which parts that are multiples of {UNIT_TOKENS} are digested",
            param="digest_tokens",
        )


def _deadline_of(
    context: grpc.aio.ServicerContext[handoff_pb2.PrefillRequest, handoff_pb2.PrefillEvent],
    clock: Clock,
) -> Deadline:
    remaining_s = context.time_remaining()  # None: the caller set no deadline
    timeout_s = MAX_TIMEOUT_S if remaining_s is None else min(remaining_s, MAX_TIMEOUT_S)
    return Deadline.after(timeout_s, clock)


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
    )


def run(options: WorkerOptions) -> int:
    """Serves until a signal or the engine's death; the process's exit code."""
    world = World()
    return run_worker(options, PrefillWorker(world), world)
