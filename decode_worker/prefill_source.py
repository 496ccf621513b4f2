"""One prefill worker at work for one request: its stream, its reads, and the verdict on both.

pull: stream opened -> events, answers to reads ... -> everything is here: returns
                        '- an error, a lie, silence: raises what it is given up for
in any case the stream is closed, which releases the blocks there
"""

from __future__ import annotations

import asyncio

from cluster.beam_search import MAX_CANDIDATES
from cluster.deadline import Sleep
from cluster.dial.dialer import PrefillStream
from cluster.errors import InternalError, NoProgress, SplitserveError, TransferFailed, WorkerLost
from cluster.logs import get_logger
from cluster.process.background import until_one_ends
from cluster.sampling import MAX_LOGPROBS
from cluster.wire import span_from_wire
from decode_worker.handoff_plan import HandoffPlan
from decode_worker.prefill_words import cached_tokens_of, first_tokens_of
from decode_worker.remote_prompt import RemotePrompt
from decode_worker.source_patience import SourcePatience
from decode_worker.stage_times import SourceTimes
from engine.contract.messages import Fetched
from protos import handoff_pb2
from worker.exchange.prefill_peers import PrefillPeer
from worker.exchange.source_blocks import SourceBlocks

_log = get_logger("decode_worker.handoff")


class PrefillSource:
    """`pull` once; `fetched` meanwhile. All calls from the event loop."""

    def __init__(
        self,
        peer: PrefillPeer,
        plan: HandoffPlan,
        prompt: RemotePrompt,
        patience: SourcePatience,
        *,
        sleep: Sleep,
    ) -> None:
        self._worker_id = peer.key.worker_id
        self._peer = peer
        self._plan = plan
        self._prompt = prompt
        self._patience = patience
        self._sleep = sleep
        self._cached_tokens = 0
        self._is_done = False
        """Its stream has said Done."""
        self._verdict: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._verdict.add_done_callback(_note_read)

    async def pull(self) -> None:
        """Returns when the prompt is complete, or over with its first token.

        Raises the SplitserveError for which this source is given up.
        """
        sizes, num_tokens = self._peer.block_sizes, self._plan.request.num_known_tokens
        blocks = self._prompt.begin_source(sizes, num_tokens)
        request = self._plan.prefill_request(
            self._peer.key.incarnation,
            first_block=self._first_wanted(blocks),
            digest_tokens=sizes.digest_tokens,
        )
        stream = self._peer.link.prefill(request, self._plan.deadline)
        try:
            await until_one_ends(self._read(stream), self._listen(), self._judged())
        except SplitserveError:
            raise
        except Exception as error:
            _log.exception(
                "a prefill worker's message could not be handled; the prompt is computed elsewhere"
            )
            raise InternalError(
                f"handoff from {self._worker_id}: {type(error).__name__}; see the worker's log"
            ) from error
        finally:
            stream.close()

    def fetched(self, event: Fetched) -> None:
        """A read is over; the prompt knows it already."""
        if event.error and event.incarnation == self._peer.key.incarnation:
            self._fail(TransferFailed(f"reading from {self._worker_id}: {event.error}"))
            return
        self._prompt.read_offered(self._peer.key.incarnation)
        self._settle()

    def _first_wanted(self, blocks: SourceBlocks) -> int:
        """The first block to export; none when the first token is known to be the last one."""
        request = self._plan.request
        is_last = request.sampling.max_tokens - request.num_begun_tokens == 1
        if is_last and request.sampling.beams is None:
            return blocks.num_blocks
        return blocks.first_for(self._prompt.first_unverified)

    async def _read(self, stream: PrefillStream) -> None:
        while (event := await stream.next()) is not None:
            self._patience.heard(event)
            self._take(event)
        if not self._verdict.done():
            raise WorkerLost(f"{self._worker_id} ended the stream before its reader did")
        await self._verdict

    async def _listen(self) -> None:
        """Until Done; what is left then are reads, which have a limit of their own."""
        while not self._is_done:
            await self._sleep(self._patience.interval_s)
            why = self._patience.tick()
            if why is not None and not self._is_done:
                raise NoProgress(f"{self._worker_id} {why}")
        await self._verdict

    async def _judged(self) -> None:
        await self._verdict

    def _take(self, event: handoff_pb2.PrefillEvent) -> None:
        match event.WhichOneof("event"):
            case "accepted":
                self._prompt.accepted()
                num_tokens = self._plan.request.num_known_tokens
                self._cached_tokens = cached_tokens_of(
                    event.accepted, num_prompt_tokens=num_tokens, worker_id=self._worker_id
                )
            case "blocks_ready":
                span = span_from_wire(event.blocks_ready)
                self._prompt.offer(span, self._peer.key.incarnation)
            case "scored":
                self._take_scores(event.scored)
            case "first_token":
                self._take_first_token(event.first_token)
            case "done":
                self._is_done = True
        self._settle()

    def _take_scores(self, scored: handoff_pb2.ScoredTokens) -> None:
        if self._prompt.scores is None:
            raise TransferFailed(f"{self._worker_id} scored tokens of a prompt, unasked")
        self._prompt.scores.take(scored, self._worker_id)

    def _take_first_token(self, first: handoff_pb2.FirstToken) -> None:
        if self._prompt.is_seeded:
            return
        if self._prompt.lacks_scores:
            raise TransferFailed(f"{self._worker_id} left tokens of the prompt without a score")
        tokens = first_tokens_of(
            first,
            choices=self._plan.request.choices,
            vocab_size=self._plan.vocab_size,
            worker_id=self._worker_id,
            max_top=MAX_LOGPROBS if self._plan.request.sampling.beams is None else MAX_CANDIDATES,
        )
        times = SourceTimes(self._worker_id, first.queue_ms, first.prefill_ms, self._cached_tokens)
        self._prompt.seed(tokens, times, is_last=first.is_last)

    def _settle(self) -> None:
        prompt = self._prompt
        if prompt.is_over or (self._is_done and prompt.is_complete):
            self._succeed()
        elif self._is_done and not prompt.is_seeded:
            self._fail(TransferFailed(f"{self._worker_id} finished without a first token"))
        elif self._is_done and not prompt.is_reading:
            self._fail(TransferFailed(f"{self._worker_id} did not announce every block"))

    def _succeed(self) -> None:
        if not self._verdict.done():
            self._verdict.set_result(None)

    def _fail(self, error: SplitserveError) -> None:
        if not self._verdict.done():
            self._verdict.set_exception(error)


def _note_read(verdict: asyncio.Future[None]) -> None:
    """Nobody may be left to hear of a failure."""
    if not verdict.cancelled():
        verdict.exception()
