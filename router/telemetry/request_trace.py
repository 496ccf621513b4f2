"""A traced request in its router: what is to be known of it when it is over, and then its spans.

begun at the door -> came -> legs go out, each with a span of its own -> answered | not -> over
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cluster.generation import FinishReason, Timing, Usage
from cluster.sampling import SamplingParams
from cluster.tracing.context import context_to_wire
from cluster.tracing.part import TracePart
from protos import handoff_pb2
from router.telemetry.decisions import Decision
from router.telemetry.request_arrival import RequestArrival
from router.telemetry.request_spans import TracedAnswer, add_answer_spans


class RequestTrace(msgspec.Struct, eq=False):
    """Of one request. From the event loop; nothing here is called for a token."""

    part: TracePart
    operation: str
    """As the conventions for generative AI name it: chat, text_completion."""
    model: str
    arrival: RequestArrival | None = None
    """Once it has come to the dispatcher; before that it can only be refused."""
    answer: TracedAnswer | None = None

    def came(self, arrival: RequestArrival, sampling: SamplingParams, num_prompt: int) -> None:
        """To the dispatcher."""
        self.arrival = arrival
        self.answer = TracedAnswer(self.operation, self.model, arrival, sampling, num_prompt)

    def routed(self, decision: Decision) -> None:
        """The last counts, however it ends."""
        if self.answer is not None:
            self.answer.decision = decision

    def new_leg(self) -> bytes:
        """The span id of one way to workers."""
        return self.part.new_span_id()

    def parent_of(self, span_id: bytes) -> handoff_pb2.TraceParent:
        """What the workers of that leg are told."""
        return context_to_wire(self.part.context(span_id))

    def headers_of(self, span_id: bytes) -> dict[str, str]:
        """What a server that is none of ours is told of that leg."""
        return self.part.context(span_id).headers

    def answered(
        self,
        decision: Decision,
        usage: Usage,
        timing: Timing | None,
        reasons: Sequence[FinishReason] = (),
    ) -> None:
        """It ended well. Of an answer that only passed by, nobody knows `reasons`, and of one that
        was not seen to come, no `timing`."""
        if self.answer is not None:
            self.answer.decision, self.answer.reasons = decision, reasons
            self.answer.usage, self.answer.timing = usage, timing

    def over(self, decision: Decision | None, now_s: float) -> None:
        """Its spans are on their way. `decision`: the last, where it is still known."""
        if self.answer is not None:
            self.answer.decision = self.answer.decision or decision
            add_answer_spans(self.part, self.answer, now_s)
            self.part.send()
