"""What every worker answers to one that reads its blocks: handshakes, and what is cached.

The blocks are pinned while the reader's stream lives; `ReleaseExport` is sent in a `finally`. A
worker that drains answers, too: it is then that others take over what it has.
"""

from __future__ import annotations

from typing import Any

import grpc

from cluster.deadline import MAX_TIMEOUT_S, Clock, Deadline
from cluster.errors import InvalidRequest, NotReady, SplitserveError, WrongWorker
from cluster.granule import UNIT_TOKENS
from cluster.identity import WorkerKey
from cluster.kv_peer import KvPeer
from cluster.logs import get_logger
from cluster.pairing import check_pairing
from cluster.rpc import abort
from cluster.sampling import SamplingParams
from cluster.wire import pairing_from_wire, pairing_to_wire, peer_to_wire
from engine.contract.commands import GenerateRequest, PrefillMode, ReleaseExport
from protos import handoff_pb2
from worker.admission import check_size
from worker.exchange.cached_export import CachedExport
from worker.role import RunningWorker

_NOTHING = SamplingParams(max_tokens=1)
"""Of what is not sampled."""
_log = get_logger("worker.exchange")


class CacheExports:
    """All calls from the event loop; refuses until `open`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._worker: RunningWorker | None = None

    def open(self, worker: RunningWorker) -> None:
        """From now on it answers."""
        self._worker = worker

    def opened(self) -> tuple[RunningWorker, KvPeer]:
        """Raises NotReady."""
        if self._worker is None or self._worker.ready.peer is None:
            raise NotReady("this worker is still loading")
        return self._worker, self._worker.ready.peer

    async def shake_hands(
        self, request: handoff_pb2.HandshakeRequest, context: grpc.aio.ServicerContext
    ) -> handoff_pb2.HandshakeResponse:
        """Refuses a caller whose blocks would differ; the message names both values."""
        try:
            worker, peer = self.opened()
            theirs = pairing_from_wire(request.pairing)
            check_pairing(worker.pairing, theirs, peer=request.worker_id)
        except SplitserveError as error:
            _log.warning(
                "the handshake of a reader is refused",
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

    async def serve(
        self,
        request: handoff_pb2.PrefillRequest,
        context: grpc.aio.ServicerContext[handoff_pb2.PrefillRequest, handoff_pb2.PrefillEvent],
    ) -> None:
        """Until the reader leaves, who is told what is wrong with the request, or ended it."""
        try:
            await self._export(request, context)
        except SplitserveError as error:
            _log.warning(
                "a cached prefix could not be handed on; its reader is told", error=error.message
            )
            await abort(context, error)

    async def _export(
        self,
        request: handoff_pb2.PrefillRequest,
        context: grpc.aio.ServicerContext[handoff_pb2.PrefillRequest, handoff_pb2.PrefillEvent],
    ) -> None:
        worker, _ = self.opened()
        check_request(request, worker)
        body = _to_engine(request, worker, deadline_of(context, self._clock))
        export = CachedExport(
            first_block=request.first_block, block_size=worker.pairing.block_size_tokens
        )
        worker.engine.submit(body, export)
        try:
            while (message := await export.next_message()) is not None:
                await context.write(message)
            await export.wait_ended()
        finally:
            worker.engine.send(ReleaseExport(body.request_id))


def check_request(request: handoff_pb2.PrefillRequest, worker: RunningWorker) -> None:
    """Raises WrongWorker, InvalidRequest or ContextTooLong for what no engine should see."""
    check_incarnation(request.incarnation, worker.key)
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


def check_incarnation(meant: str, key: WorkerKey) -> None:
    """Raises WrongWorker when the caller means another process."""
    if meant != key.incarnation:
        raise WrongWorker(
            f"{key.worker_id} is incarnation {key.incarnation}, not {meant[:64]}: it restarted; "
            "shake hands again"
        )


def deadline_of(
    context: grpc.aio.ServicerContext[Any, Any],
    clock: Clock,
) -> Deadline:
    """The caller's, or the longest there is."""
    remaining_s = context.time_remaining()  # None: the caller set no deadline
    timeout_s = MAX_TIMEOUT_S if remaining_s is None else min(remaining_s, MAX_TIMEOUT_S)
    return Deadline.after(timeout_s, clock)


def _check_digests(digest_tokens: int, block_size_tokens: int) -> None:
    """Parts of a block are whole 64-bit words, in which they are verified."""
    is_part = digest_tokens % UNIT_TOKENS == 0 and block_size_tokens % max(1, digest_tokens) == 0
    if not is_part and digest_tokens != block_size_tokens:
        raise InvalidRequest(
            f"digest_tokens is {digest_tokens}; blocks here have {block_size_tokens} tokens, of "
            f"which parts that are multiples of {UNIT_TOKENS} are digested",
            param="digest_tokens",
        )


def _to_engine(
    request: handoff_pb2.PrefillRequest, worker: RunningWorker, deadline: Deadline
) -> GenerateRequest:
    return GenerateRequest(
        request_id=worker.engine.name_for(request.request_id),
        token_ids=list(request.token_ids),
        sampling=_NOTHING,
        cache_root=request.cache_root,
        mode=PrefillMode.CACHED,
        first_block=request.first_block,
        digest_tokens=request.digest_tokens,
        timeout_ms=deadline.remaining_ms,
    )
