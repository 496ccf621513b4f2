"""One request whose prompt is prefilled elsewhere: from the reservation to the last verified block.

    RESERVING --Reserved--> PULLING --all blocks verified, first token seeded--> COMPLETE
                               |  ^      or the first token was the last one
                               |  '-- the source failed: the next one, from the first bad block
                               '-- no source is left, no read is under way --> LOCAL
    from every state, when the request ends: CANCELLED

The first token is passed on once and never changes: a second source's is ignored, and after
PrefillLocally the engine computes the missing KV and goes on behind the seeded token.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster.errors import (
    DeadlineExceeded,
    SplitserveError,
    TransferFailed,
    WorkerLost,
    status_of,
)
from cluster.identity import WorkerKey
from cluster.logs import get_logger
from cluster.wire import sampling_to_wire, span_from_wire
from decode_worker.block_ledger import BlockLedger
from decode_worker.prefill_peers import PrefillPeer, PrefillPeers
from decode_worker.prefill_source import PrefillSource
from decode_worker.request_clock import RequestClock, SourceTimes
from engine.contract.commands import Command, Fetch, GenerateRequest, PrefillLocally, Seed
from engine.contract.messages import Fetched, Reserved
from protos import handoff_pb2, worker_pb2

_log = get_logger("decode_worker.handoff")


class HandoffState(enum.StrEnum):
    """Where a handoff is, and how it ended."""

    RESERVING = "reserving"
    PULLING = "pulling"
    COMPLETE = "complete"
    LOCAL = "local"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffPlan:
    """What is to be prefilled, and who may do it, best first."""

    request_id: str
    """The client's: what the prefill worker logs."""
    request: GenerateRequest
    targets: Sequence[worker_pb2.PrefillTarget]
    traceparent: str
    vocab_size: int
    """First tokens are below it."""


class Handoff:
    """`run` is one task per request; the engine's events come in by `reserved` and `fetched`.

    Cancelling the task closes the prefill stream, which is the release of the blocks there.
    `on_source` is called for every source that was tried: with None, or why it was given up.
    """

    def __init__(
        self,
        plan: HandoffPlan,
        peers: PrefillPeers,
        send: Callable[[Command], None],
        clock: RequestClock,
        on_source: Callable[[WorkerKey, SplitserveError | None], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._plan = plan
        self._engine_id = plan.request.request_id
        self._peers = peers
        self._send = send
        self._clock = clock
        self._on_source = on_source
        self._deadline = loop.time() + plan.request.timeout_ms / 1000
        self._reserved: asyncio.Future[Reserved] = loop.create_future()
        self._ledger = BlockLedger(num_blocks=0, first_block=0)
        self._quiet = asyncio.Event()
        self._source: PrefillSource | None = None
        self._is_seeded = False
        self._is_over = False
        """The source says that no choice goes on: the engine ends the request by itself."""
        self.state = HandoffState.RESERVING
        self.num_failures = 0

    def reserved(self, event: Reserved) -> None:
        """The engine has blocks for the prompt."""
        if not self._reserved.done():
            self._reserved.set_result(event)

    def fetched(self, event: Fetched) -> None:
        """A read is over, of the current source or of an earlier one."""
        self._ledger.answer(event.first_index, event.num_blocks)
        if self._ledger.is_quiet:
            self._quiet.set()
        if self._ledger.is_complete:
            self._clock.verified(event.frame_delay_ms)
        source = self._source
        if source is None:
            return
        if event.error and event.incarnation == source.incarnation:
            source.fail(TransferFailed(f"reading from {source.worker_id}: {event.error}"))
        else:
            self._read_what_is_offered(source)
            self._settle(source)

    async def run(self) -> None:
        """Returns once the engine can go on without this handoff."""
        try:
            event = await self._reserved
            self._clock.reserved()
            self._ledger = BlockLedger(
                num_blocks=len(event.block_ids), first_block=event.first_block
            )
            self.state = HandoffState.PULLING
            await self._pull_or_prefill_locally()
        except asyncio.CancelledError:
            self.state = HandoffState.CANCELLED
            raise

    async def _pull_or_prefill_locally(self) -> None:
        for target in self._plan.targets:
            if self._ledger.is_complete:
                break  # nothing to read: at most a token is left to compute
            try:
                await self._pull(target)
            except SplitserveError as error:
                if not self._is_done:  # a stream that breaks after the last block hurts nobody
                    self._give_up(target, error)
            else:
                self._on_source(WorkerKey(target.worker_id, target.incarnation), None)
            if self._is_over:
                break
        if not self._is_done:
            await self._all_reads_answered()
        if self._is_done:
            self.state = HandoffState.COMPLETE
            return
        self._prefill_locally()

    def _prefill_locally(self) -> None:
        """An engine whose rules, after all, let a choice go on computes the KV itself; the request
        of any other has ended with the first token, and is not touched."""
        if not self._is_over:
            self.state = HandoffState.LOCAL
            self._clock.source_begins()
            _log.warning("prefilling locally", verified_blocks=self._ledger.first_unverified)
        self._send(PrefillLocally(self._engine_id))

    @property
    def is_reading(self) -> bool:
        """True while the intake has not answered every read."""
        return not self._ledger.is_quiet

    @property
    def _is_done(self) -> bool:
        return self._is_seeded and self._ledger.is_complete

    def _give_up(self, target: worker_pb2.PrefillTarget, error: SplitserveError) -> None:
        self.num_failures += 1
        self._ledger.forget_offers()
        worker = WorkerKey(target.worker_id, target.incarnation)
        if isinstance(error, WorkerLost):
            self._peers.forget(worker)
        self._on_source(worker, error)
        _log.warning(
            "handoff failed",
            prefill_worker=target.worker_id,
            code=status_of(error).code,
            error=error.message,
            verified_blocks=self._ledger.first_unverified,
            num_blocks=self._ledger.num_blocks,
        )

    async def _all_reads_answered(self) -> None:
        """The engine answers every Fetch, so this ends; the request's end cancels it at worst."""
        while not self._ledger.is_quiet:
            self._quiet.clear()
            await self._quiet.wait()

    async def _pull(self, target: worker_pb2.PrefillTarget) -> None:
        """Returns when every block is verified and the first token is seeded. Raises otherwise."""
        peer = await self._peers.connect(target)
        remaining_s = self._deadline - asyncio.get_running_loop().time()
        if remaining_s <= 0:
            raise DeadlineExceeded("the request's deadline passed before its prompt was prefilled")
        self._clock.source_begins()
        source = self._source = PrefillSource(peer)
        call = peer.stub.Prefill(self._prefill_request(peer), timeout=remaining_s)
        reader = asyncio.create_task(source.read(call, lambda event: self._take(event, source)))
        try:
            await source.verdict
        finally:
            self._source = None
            call.cancel()  # closing the stream is the release
            reader.cancel()

    def _prefill_request(self, peer: PrefillPeer) -> handoff_pb2.PrefillRequest:
        request = self._plan.request
        return handoff_pb2.PrefillRequest(
            request_id=self._plan.request_id,
            incarnation=peer.incarnation,
            token_ids=request.token_ids,
            sampling=sampling_to_wire(request.sampling),
            first_block=self._first_wanted,
            cache_root=request.cache_root,
            traceparent=self._plan.traceparent,
        )

    def _take(self, event: handoff_pb2.PrefillEvent, source: PrefillSource) -> None:
        match event.WhichOneof("event"):
            case "accepted":
                num_tokens = len(self._plan.request.token_ids)
                source.accepted(event.accepted, num_prompt_tokens=num_tokens)
            case "blocks_ready":
                self._take_blocks(event.blocks_ready, source)
            case "first_token":
                self._take_first_token(event.first_token, source)
            case "done":
                source.is_done = True
        self._settle(source)

    def _take_blocks(self, ready: handoff_pb2.BlocksReady, source: PrefillSource) -> None:
        self._ledger.offer(span_from_wire(ready))
        self._read_what_is_offered(source)

    @property
    def _first_wanted(self) -> int:
        """The first block to export; none when the first token is known to be the last one."""
        if self._plan.request.sampling.max_tokens == 1:
            return self._ledger.num_blocks
        return self._ledger.first_unverified

    def _read_what_is_offered(self, source: PrefillSource) -> None:
        for span in self._ledger.take_reads():
            self._send(Fetch(self._engine_id, source.incarnation, span))

    def _take_first_token(self, first: handoff_pb2.FirstToken, source: PrefillSource) -> None:
        if self._is_seeded:
            return
        tokens = source.first_tokens(
            first,
            num_choices=self._plan.request.sampling.n,
            vocab_size=self._plan.vocab_size,
        )
        self._is_seeded = True
        self._send(Seed(self._engine_id, tokens))
        self._clock.first_token(
            SourceTimes(source.worker_id, first.queue_ms, first.prefill_ms, source.cached_tokens)
        )
        if first.is_last:
            self._is_over = True
            source.succeed()

    def _settle(self, source: PrefillSource) -> None:
        if source.is_done and self._is_done:
            source.succeed()
        elif source.is_done and not self._is_seeded:
            source.fail(TransferFailed(f"{source.worker_id} finished without a first token"))
        elif source.is_done and self._ledger.is_quiet:
            source.fail(TransferFailed(f"{source.worker_id} did not announce every block"))
