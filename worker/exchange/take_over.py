"""One prefix that another worker has cached comes into the prefix cache of this one.

KEEP -> Reserved -> source: CACHED stream -> BlocksReady -> reads -> verified: cached
          '- it is all here already: nothing is asked for
at the end, whatever it is: the stream is closed, which unpins the blocks there, and the request
is cancelled, which ends its reads; what was verified stays cached
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from cluster.block_span import BlockSpan
from cluster.deadline import Deadline
from cluster.dial.dialer import PrefillStream
from cluster.errors import InternalError, SplitserveError, TransferFailed, WorkerLost, from_code
from cluster.process.background import until_one_ends
from cluster.wire import span_from_wire
from engine.contract.commands import Cancel, Command, Fetch, GenerateRequest
from engine.contract.messages import Fetched, RequestEnded, Reserved
from protos import handoff_pb2
from worker.engine.listeners import RequestEvent
from worker.exchange.block_ledger import BlockLedger
from worker.exchange.prefill_peers import PrefillPeer, PrefillPeers
from worker.exchange.prefill_target import PrefillTarget
from worker.exchange.promised_room import RoomLease


@dataclass(frozen=True, slots=True)
class TakenPrefix:
    """What has come of it."""

    handed_tokens: int
    """That were not here before, and are cached now."""
    known_tokens: int
    num_bytes: int


class TakeOver:
    """One prefix; the listener of its request. `run` once. All calls from the event loop."""

    def __init__(
        self,
        body: GenerateRequest,
        block_size: int,
        lease: RoomLease,
        send: Callable[[Command], None],
    ) -> None:
        """`body`: of whole blocks. `lease`: for all of them; the caller's, who releases it."""
        self._body, self._block_size, self._send = body, block_size, send
        self._lease = lease
        loop = asyncio.get_running_loop()
        self._reserved: asyncio.Future[Reserved] = loop.create_future()
        self._failed: asyncio.Future[None] = loop.create_future()
        self._failed.add_done_callback(_note_read)
        self._ledger = BlockLedger(num_blocks=0, first_block=0)
        self._first_block = 0
        self._quiet = asyncio.Event()
        self._num_bytes = 0

    @property
    def taken(self) -> TakenPrefix:
        """So far."""
        size, verified = self._block_size, self._ledger.first_unverified
        known = self._first_block * size
        return TakenPrefix((verified - self._first_block) * size, known, self._num_bytes)

    def receive(self, event: RequestEvent) -> None:
        """See RequestListener."""
        match event:
            case Reserved():
                if not self._reserved.done():
                    self._reserved.set_result(event)
            case Fetched():
                self._take_fetched(event)
            case RequestEnded():
                self._fail(
                    from_code(event.error_code, event.error_message)
                    if event.error_code
                    else InternalError("the engine ended a prefix that was being taken over")
                )
            case _:
                raise InternalError(f"a prefix that is taken over got a {type(event).__name__}")

    async def run(
        self, target: PrefillTarget, peers: PrefillPeers, deadline: Deadline
    ) -> TakenPrefix:
        """Once it was submitted. Raises why no more of it came: `taken` then has what did."""
        try:
            await until_one_ends(self._reserve(), self._judged())
            if not self._ledger.is_complete:
                peer = await peers.connect(target)
                await self._pull(peer, deadline)
        finally:
            self._lease.keep(self.taken.handed_tokens // self._block_size)
            self._send(Cancel(self._body.request_id))
        return self.taken

    async def _reserve(self) -> None:
        event = await self._reserved
        self._lease.place(len(event.block_ids) - event.first_block)
        self._first_block = event.first_block
        self._ledger = BlockLedger(num_blocks=len(event.block_ids), first_block=event.first_block)

    async def _judged(self) -> None:
        await asyncio.wait((self._failed,))  # who stops waiting does not end it
        self._failed.result()

    async def _pull(self, peer: PrefillPeer, deadline: Deadline) -> None:
        num_tokens = len(self._body.token_ids)
        blocks = peer.block_sizes.of_prompt(
            num_tokens=num_tokens, num_blocks=self._ledger.num_blocks
        )
        self._ledger.begin_source(blocks)
        request = handoff_pb2.PrefillRequest(
            request_id=self._body.request_id,
            incarnation=peer.key.incarnation,
            token_ids=self._body.token_ids,
            first_block=blocks.first_for(self._ledger.first_unverified),
            cache_root=self._body.cache_root,
            digest_tokens=peer.block_sizes.digest_tokens,
            cached_only=True,
        )
        stream = peer.link.prefill(request, deadline)
        try:
            await until_one_ends(self._read(stream, peer), self._judged())
        finally:
            stream.close()

    async def _read(self, stream: PrefillStream, peer: PrefillPeer) -> None:
        """Until all that was announced is read; the blocks are pinned meanwhile."""
        is_done = False
        while not is_done:
            event = await stream.next()
            if event is None:
                raise WorkerLost(f"{peer.key.worker_id} ended the stream before its reader did")
            is_done = event.HasField("done")
            if event.HasField("blocks_ready"):
                self._fetch(span_from_wire(event.blocks_ready), peer.key.incarnation)
        while not self._ledger.is_quiet:
            self._quiet.clear()
            await self._quiet.wait()

    def _fetch(self, span: BlockSpan, incarnation: str) -> None:
        self._ledger.offer(span)
        for wanted in self._ledger.take_reads():
            self._send(Fetch(self._body.request_id, incarnation, wanted.span, wanted.into))

    def _take_fetched(self, event: Fetched) -> None:
        self._num_bytes += event.num_bytes
        self._ledger.answer(event.first_index, event.num_blocks)
        if event.error:
            self._fail(TransferFailed(event.error))
        if self._ledger.is_quiet:
            self._quiet.set()

    def _fail(self, error: SplitserveError) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)


def _note_read(failed: asyncio.Future[None]) -> None:
    """Nobody may be left to hear of a failure."""
    if not failed.cancelled():
        failed.exception()
