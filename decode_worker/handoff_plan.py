"""What a handoff is asked for: a prompt, who may compute it, and by when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.deadline import Deadline
from cluster.wire import begun_to_wire, sampling_to_wire
from decode_worker.request_spans import DecodeTrace
from engine.contract.commands import GenerateRequest
from protos import handoff_pb2
from worker.exchange.prefill_target import PrefillTarget

LEAST_PATIENCE_S = 1.5
"""A prefill worker speaks about every second while its engine works, at the latest when a step has
become a long one; the rest is for the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffPlan:
    """What is to be prefilled, and who may do it, best first."""

    request_id: str
    """The client's: what the prefill worker logs."""
    request: GenerateRequest
    deadline: Deadline
    targets: Sequence[PrefillTarget]
    progress_timeout_s: float
    """Silence after which a source is given up, at most."""
    vocab_size: int
    """First tokens are below it."""
    trace: DecodeTrace | None = None
    """None: the request is not traced."""

    def patience_s(self, num_sources_left: int) -> float:
        """The silence that a source is allowed while so many, itself included, are left.

        They share what is left of the deadline, and one share is for computing the prompt here.
        """
        share_s = self.deadline.remaining_s / (num_sources_left + 1)
        return min(self.progress_timeout_s, max(LEAST_PATIENCE_S, share_s))

    def prefill_request(
        self, incarnation: str, *, first_block: int, digest_tokens: int = 0
    ) -> handoff_pb2.PrefillRequest:
        """For one source, which is to announce its blocks from `first_block` on, with digests of so
        many tokens each."""
        request = self.request
        return handoff_pb2.PrefillRequest(
            request_id=self.request_id,
            incarnation=incarnation,
            token_ids=request.token_ids,
            sampling=sampling_to_wire(request.sampling),
            first_block=first_block,
            digest_tokens=digest_tokens,
            cache_root=request.cache_root,
            adapter=request.adapter,
            owner=request.owner,
            resume=begun_to_wire(request.resume[0]) if request.resume else None,
            trace=None if self.trace is None else self.trace.for_source,
        )
