"""Streams over HTTP that another connection may go on with: in the same words as before.

resumable: true   ->  every event has an id:    ->  Last-Event-ID: the rest, as if nothing was
"""

from __future__ import annotations

import msgspec

from cluster.errors import InvalidRequest
from router.api.answers.shape import Envelope
from router.api.reading.plan import AnswerOptions, Plan
from router.resume.place import is_of_ours

EVENT_HEADER = b"last-event-id"


class ToldStream(msgspec.Struct, frozen=True, array_like=True):
    """What stands around an answer, whoever tells it."""

    id: str
    created_s: int
    include_usage: bool
    continuous_usage: bool
    timings: bool

    @classmethod
    def of(cls, envelope: Envelope, options: AnswerOptions) -> ToldStream:
        """Of a stream that begins."""
        return cls(
            envelope.id,
            envelope.created_s,
            options.include_usage,
            options.continuous_usage,
            options.timings,
        )

    @property
    def options(self) -> AnswerOptions:
        """As they were asked for."""
        return AnswerOptions(
            stream=True,
            include_usage=self.include_usage,
            continuous_usage=self.continuous_usage,
            timings=self.timings,
            resumable=True,
        )

    def envelope(self, model: str, fingerprint: str) -> Envelope:
        """The same as before."""
        return Envelope(id=self.id, model=model, fingerprint=fingerprint, created_s=self.created_s)


def rest_asked_for(event_id: str | None, body: bytes) -> str | None:
    """The event after which a client wants the rest. None: it asks for an answer of its own,
    whatever its library has last read from another server's stream."""
    if not event_id or (body and not is_of_ours(event_id)):
        return None
    return event_id


def check_resumable(plan: Plan) -> None:
    """Raises InvalidRequest for what nobody could have the rest of."""
    if not plan.options.resumable:
        return
    if not plan.options.stream:
        raise InvalidRequest("resumable is for streams; send stream: true", param="resumable")
    if len(plan.prompts) > 1:
        raise InvalidRequest("resumable is for one prompt only; send one", param="resumable")
    if plan.wishes.tells_prompt:
        raise InvalidRequest(
            "resumable goes with neither echo nor prompt_logprobs; leave out one of them",
            param="resumable",
        )
