"""Where one request's time went, as this worker sees it: the queue, prefill and kv parts of TTFT.

    submitted -- reservation --> reserved -- handshake, sources that failed --> a source begins
    -- its queue, its compute --> first token -- kv_visible --> last block verified
                    '- accepted, blocks offered ... first block verified ...'

All times are of one clock of this process, but those that the source has measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.deadline import Clock
from cluster.generation import Timing
from cluster.prompt_stages import PromptStages
from engine.contract.draft_numbers import NO_DRAFTS
from engine.contract.messages import Fetched, PromptComputed, RequestEnded


@dataclass(frozen=True, slots=True)
class SourceTimes:
    """What a prefill worker measured for this request, in milliseconds."""

    worker_id: str
    queue_ms: float
    prefill_ms: float
    cached_tokens: int


class StageTimes:
    """Stamped by the request and its handoff; read with the first tokens and at the end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._submitted_at = self._clock()
        self._reserved_at: float | None = None
        self._source_began_at: float | None = None
        self._accepted_at: float | None = None
        self._offered_at: float | None = None
        self._first_block_at: float | None = None
        self._first_token_at: float | None = None
        self._computed_at: float | None = None
        self._verified_at: float | None = None
        self._num_failed_sources = 0
        self._source: SourceTimes | None = None
        self._kv_bytes = 0
        self._kv_blocks = 0
        self._kv_transfer_ms = 0.0

    @property
    def source(self) -> SourceTimes | None:
        """The prefill worker that sampled the first token; None: nobody elsewhere did."""
        return self._source

    @property
    def kv_blocks(self) -> int:
        """That came from elsewhere, and verified."""
        return self._kv_blocks

    def reserved(self) -> None:
        """The engine gave the request its blocks."""
        self._reserved_at = self._clock()

    def source_begins(self) -> None:
        """A prefill worker, or this one, starts on the prompt; the last call before the first
        token counts."""
        if self._first_token_at is None:
            self._source_began_at, self._accepted_at = self._clock(), None

    def source_failed(self) -> None:
        """A prefill worker is given up."""
        self._num_failed_sources += 1

    def accepted(self) -> None:
        """The prefill worker's engine has begun."""
        self._accepted_at = self._clock()

    def offered(self) -> None:
        """Blocks may be read."""
        if self._offered_at is None:
            self._offered_at = self._clock()

    def computed(self) -> None:
        """This engine has the first tokens, its own or another's."""
        if self._computed_at is None:
            self._computed_at = self._clock()

    def first_token(self, source: SourceTimes) -> None:
        """The first token came from a prefill worker."""
        self._first_token_at = self._clock()
        self._source = source

    def fetched(self, outcome: Fetched) -> None:
        """A read is over."""
        self._kv_bytes += outcome.num_bytes
        self._kv_blocks += outcome.num_blocks
        self._kv_transfer_ms += outcome.duration_ms
        if self._first_block_at is None and outcome.num_blocks:
            self._first_block_at = self._clock() - outcome.frame_delay_ms / 1000

    def verified(self, frame_delay_ms: float) -> None:
        """The last block of the prompt was verified that long before its frame left."""
        self._verified_at = self._clock() - frame_delay_ms / 1000

    def timing(
        self, said: PromptComputed | RequestEnded, *, worker_id: str, kv_transport: str
    ) -> Timing:
        """The worker's part of a request's timing, as far as it is known."""
        source, drafts = self._source, said.drafts if isinstance(said, RequestEnded) else NO_DRAFTS
        reservation_ms = self._between_ms(self._submitted_at, self._reserved_at)
        return Timing(
            queue_ms=reservation_ms + source.queue_ms if source else said.queue_ms,
            prefill_ms=source.prefill_ms if source else said.prefill_ms,
            kv_ms=self._between_ms(self._reserved_at, self._source_began_at),
            kv_bytes=self._kv_bytes,
            kv_transfer_ms=self._kv_transfer_ms,
            kv_visible_ms=max(0.0, self._between_ms(self._first_token_at, self._verified_at)),
            kv_transport=kv_transport if self._kv_bytes else "",
            prefill_worker=source.worker_id if source else "",
            decode_worker=worker_id,
            draft_tokens=sum(drafts.tried),
            accepted_draft_tokens=sum(drafts.kept),
            draft_tokens_by_position=tuple(drafts.tried),
            accepted_draft_tokens_by_position=tuple(drafts.kept),
            draft_steps=drafts.num_steps,
            draft_step_tokens=drafts.num_tokens,
            draft_gain=drafts.gain,
        )

    def stages(self) -> PromptStages:
        """The same, as stamps since the submission."""
        source, since_ms = self._source, self._since_submitted_ms
        first_token_at = self._computed_at if source is None else self._first_token_at
        return PromptStages(
            said_ms=since_ms(self._clock()) or 0.0,
            reserved_ms=since_ms(self._reserved_at),
            asked_ms=since_ms(self._source_began_at),
            accepted_ms=since_ms(self._accepted_at),
            offered_ms=since_ms(self._offered_at),
            first_block_ms=since_ms(self._first_block_at),
            last_block_ms=since_ms(self._verified_at),
            first_token_ms=since_ms(first_token_at),
            source_queue_ms=source.queue_ms if source else 0.0,
            source_prefill_ms=source.prefill_ms if source else 0.0,
            num_failed_sources=self._num_failed_sources,
        )

    def _since_submitted_ms(self, at: float | None) -> float | None:
        return None if at is None else max(0.0, at - self._submitted_at) * 1000

    @staticmethod
    def _between_ms(start: float | None, end: float | None) -> float:
        return 0.0 if start is None or end is None else (end - start) * 1000
