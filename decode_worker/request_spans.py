"""The spans of a traced request at its decode worker, laid between the stamps of StageTimes.

    decode worker --------------------------------------------------------
      reserve - handoff ------------------------.
                  '- the prefill worker's spans   decode -----------------
                      transfer ------------------'
      or: queue - prefill -------------------------- decode -------------- (computed here)

A source that is given up has a handoff of its own, and the next one another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cluster.deadline import Clock
from cluster.errors import SplitserveError, status_of
from cluster.generation import Timing, Usage
from cluster.prompt_stages import PromptStages
from cluster.tracing.context import context_from_wire, context_to_wire
from cluster.tracing.part import SpanFacts, TracePart
from cluster.tracing.span import Attribute, SpanKind
from cluster.tracing.tracing import Tracing
from protos import handoff_pb2, worker_pb2


@dataclass(slots=True)
class AskedSource:
    """A prefill worker that was asked."""

    worker_id: str
    span_id: bytes
    asked_s: float
    ended_s: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class DecodedRequest:
    """How it was, when it is over."""

    stages: PromptStages
    usage: Usage
    timing: Timing
    error: SplitserveError | None
    num_blocks: int
    """That were read from prefill workers."""


class DecodeTrace:
    """Of one request. From the event loop; nothing here is called for a token."""

    @classmethod
    def of(
        cls, submit: worker_pb2.Submit, tracing: Tracing | None, clock: Clock
    ) -> DecodeTrace | None:
        """None: it is not traced, here or at all."""
        if tracing is None or not submit.HasField("trace"):
            return None
        context = context_from_wire(submit.trace)
        return None if context is None else cls(tracing.part(context), submit.request_id, clock)

    def __init__(self, part: TracePart, request_id: str, clock: Clock) -> None:
        self._part, self._request_id, self._clock = part, request_id, clock
        self._submitted_s = clock()
        self._sources: list[AskedSource] = []

    @contextmanager
    def asking(self, worker_id: str) -> Iterator[None]:
        """A prefill worker is asked for the prompt, until the block ends; the last that was is the
        one that `for_source` is for."""
        source = AskedSource(worker_id, self._part.new_span_id(), self._clock())
        self._sources.append(source)
        try:
            yield
        except SplitserveError as error:
            source.error = status_of(error).code
            raise
        finally:
            source.ended_s = self._clock()

    @property
    def for_source(self) -> handoff_pb2.TraceParent:
        """What that prefill worker is told."""
        return context_to_wire(self._part.context(self._sources[-1].span_id))

    def over(self, request: DecodedRequest) -> None:
        """Its spans are on their way."""
        ended_s = self._clock()
        part = self._part
        facts = SpanFacts(
            kind=SpanKind.SERVER,
            attributes=self._of_request(request),
            error=None if request.error is None else request.error.message,
        )
        part.whole("decode worker", self._submitted_s, ended_s, facts)
        self._add_prompt(request, ended_s)
        stages = request.stages
        began_ms = stages.first_token_ms
        if began_ms is not None:
            began_ms = max(began_ms, stages.last_block_ms or 0.0)
            facts = SpanFacts(
                attributes={"gen_ai.usage.output_tokens": request.usage.completion_tokens}
            )
            part.add("decode", self._at(began_ms), ended_s, facts)
        part.send()

    def _add_prompt(self, request: DecodedRequest, ended_s: float) -> None:
        stages = request.stages
        if stages.reserved_ms is not None:
            self._part.add("reserve", self._submitted_s, self._at(stages.reserved_ms))
        for source in self._sources:
            facts = _of_source(source)
            end_s = source.ended_s or ended_s
            self._part.add("handoff", source.asked_s, end_s, facts, span_id=source.span_id)
        if stages.offered_ms is not None:
            until_ms = stages.last_block_ms
            until_s = ended_s if until_ms is None else self._at(until_ms)
            self._part.add("transfer", self._at(stages.offered_ms), until_s, _of_reads(request))
        if not request.timing.prefill_worker and stages.first_token_ms is not None:
            self._add_own_prefill(request, stages.first_token_ms)

    def _add_own_prefill(self, request: DecodedRequest, first_token_ms: float) -> None:
        """The engine says what it took, and its first token when that was."""
        began_ms = max(0.0, first_token_ms - request.timing.prefill_ms)
        queued_ms = max(0.0, began_ms - request.timing.queue_ms)
        self._part.add("queue", self._at(queued_ms), self._at(began_ms))
        facts = SpanFacts(attributes={"splitserve.cached_tokens": request.usage.cached_tokens})
        self._part.add("prefill", self._at(began_ms), self._at(first_token_ms), facts)

    def _at(self, since_submitted_ms: float) -> float:
        return self._submitted_s + since_submitted_ms / 1000

    def _of_request(self, request: DecodedRequest) -> dict[str, Attribute]:
        found: dict[str, Attribute] = {
            "splitserve.request.id": self._request_id,
            "gen_ai.usage.input_tokens": request.usage.prompt_tokens,
            "gen_ai.usage.output_tokens": request.usage.completion_tokens,
            "splitserve.cached_tokens": request.usage.cached_tokens,
        }
        if request.timing.prefill_worker:
            found["splitserve.prefill_worker"] = request.timing.prefill_worker
        if request.error is not None:
            found["error.type"] = status_of(request.error).code
        return found


def _of_source(source: AskedSource) -> SpanFacts:
    found: dict[str, Attribute] = {"splitserve.prefill_worker": source.worker_id}
    if source.error is not None:
        found["error.type"] = source.error
    return SpanFacts(kind=SpanKind.CLIENT, attributes=found, error=source.error)


def _of_reads(request: DecodedRequest) -> SpanFacts:
    """All reads together; they overlap with computing, and with each other."""
    timing = request.timing
    return SpanFacts(
        attributes={
            "splitserve.kv.bytes": timing.kv_bytes,
            "splitserve.kv.blocks": request.num_blocks,
            "splitserve.kv.link": timing.kv_transport,
            "splitserve.kv.reading_ms": timing.kv_transfer_ms,
            "splitserve.kv.visible_ms": timing.kv_visible_ms,
        }
    )
