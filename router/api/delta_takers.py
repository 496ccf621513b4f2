"""A generation's deltas in the words of its answer: an event for each, or gathered to one piece."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from router.api.answers.bodies import UsageBody
from router.api.answers.shape import AnswerShape, ChunkFrame, Envelope, GatheredChoice
from router.api.answers.tally import Tally
from router.api.http.event_stream import EventStream
from router.api.reading.plan import AnswerOptions
from router.front.events import DeltaTaker
from router.front.resumption import Resumable
from router.text.choice import TextDelta


class ChunkWriter:
    """Of one streamed answer: from its deltas, in their order, to the data of its events."""

    def __init__(
        self,
        shape: AnswerShape,
        envelope: Envelope,
        tally: Tally,
        options: AnswerOptions,
        *,
        num_choices: int,
        resumable: Resumable | None = None,
    ) -> None:
        """`num_choices`: per prompt. `resumable`: of which another connection may have the rest."""
        self._shape = shape
        self._frame = ChunkFrame(envelope, shape.chunk_object_name)
        self._tally = tally
        self._options = options
        self._num_choices = num_choices
        self._resumable = resumable
        self._seen = set() if resumable is None else resumable.place.begun_choices

    def chunk(self, prompt: int, delta: TextDelta) -> bytes | None:
        """None: the client has it, or it tells nothing by itself."""
        index = prompt * self._num_choices + delta.choice
        self._tally.count(index, delta)
        if self._resumable is not None:
            if (rest := self._resumable.place.rest_of(delta)) is None:
                return None
            delta = rest
        choice = self._shape.chunk(index, delta, first=index not in self._seen)
        if choice is None:
            return None
        self._seen.add(index)
        return self.named(self._frame.encode(choice, self._usage()))

    def named(self, data: bytes) -> bytes:
        """With a line of its own for the event's id, where there is one."""
        event_id = None if self._resumable is None else self._resumable.event_id
        return data if event_id is None else b"%b\nid: %b" % (data, event_id.encode())

    def _usage(self) -> UsageBody | None | msgspec.UnsetType:
        if self._options.continuous_usage:
            return self._tally.usage()
        return None if self._options.include_usage else msgspec.UNSET


class EventTaker(DeltaTaker):
    """Writes the events of a stream that has begun."""

    def __init__(self, writer: ChunkWriter, stream: EventStream) -> None:
        self._writer = writer
        self._stream = stream
        self.is_ready = stream.takes_now  # type: ignore[method-assign]  # asked with every delta

    def is_ready(self) -> bool:
        """See DeltaTaker."""
        return self._stream.takes_now()

    def take(self, delta: TextDelta) -> None:
        """See DeltaTaker."""
        if (chunk := self._writer.chunk(0, delta)) is not None:
            self._stream.send_now(chunk)


class GatheringTaker(DeltaTaker):
    """Adds to the choices of an answer in one piece, of one prompt."""

    def __init__(self, gathered: Sequence[GatheredChoice], tally: Tally) -> None:
        self._gathered = gathered
        self._tally = tally

    def is_ready(self) -> bool:
        """See DeltaTaker."""
        return True

    def take(self, delta: TextDelta) -> None:
        """See DeltaTaker."""
        self._tally.count(delta.choice, delta)
        self._gathered[delta.choice].add(delta)
