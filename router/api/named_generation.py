"""A generation of one choice, told in named events or in one piece of the same API."""

from __future__ import annotations

from contextlib import aclosing

from cluster.errors import Cancelled, SplitserveError
from router.api.answers.ending import NO_END
from router.api.answers.gathered_parts import GatheredParts
from router.api.answers.tally import Tally
from router.api.answers.telling_shape import Telling, TellingShape
from router.api.generation import Generation
from router.api.http.event_stream import EventStream
from router.api.http.exchange import Exchange
from router.dispatch.stream import Completed
from router.front.events import DeltaTaker
from router.text.choice import TextDelta


class NamedGeneration(Generation, kw_only=True):
    """See Generation; its shape is a TellingShape."""

    async def _whole(self, exchange: Exchange) -> None:
        gathered = _Gathered(self._telling_shape, self.tally)
        async with aclosing(self.begin(gathered)) as events:
            async for _, event in events:
                if isinstance(event, Completed):
                    self.tally.end(event)
                elif isinstance(event, TextDelta):
                    gathered.take(event)
        telling = self._telling_shape.telling(self.envelope)
        body = telling.whole(gathered.parts, gathered.ending, self.tally.usage())
        await exchange.reply(body)

    async def _stream(self, exchange: Exchange) -> None:
        telling = self._telling_shape.telling(self.envelope)
        async with EventStream(exchange, self.ping_interval_s, is_named=True) as stream:
            try:
                await self._tell(stream, telling)
            except Cancelled:
                raise
            except SplitserveError as error:
                if not stream.started:
                    raise
                await stream.send(telling.failed(error))
            await stream.end()

    async def _tell(self, stream: EventStream, telling: Telling) -> None:
        """The beginning goes out with the first delta."""
        writer = _BlockWriter(self._telling_shape, telling, self.tally, stream)
        async with aclosing(self.begin(writer)) as events:
            async for _, event in events:
                if isinstance(event, Completed):
                    self.tally.end(event)
                elif isinstance(event, TextDelta) and (block := writer.block(event)):
                    await stream.send(block)
        await stream.send(telling.end(writer.ending, self.tally.usage()))

    @property
    def _telling_shape(self) -> TellingShape:
        assert isinstance(self.shape, TellingShape), "readers of named APIs make such shapes"
        return self.shape


class _BlockWriter(DeltaTaker):
    """From deltas to blocks of events."""

    def __init__(
        self, shape: TellingShape, telling: Telling, tally: Tally, stream: EventStream
    ) -> None:
        self._shape = shape
        self._telling = telling
        self._tally = tally
        self._stream = stream
        self._has_begun = False
        self.ending = NO_END

    def is_ready(self) -> bool:
        """See DeltaTaker."""
        return self._stream.takes_now()

    def take(self, delta: TextDelta) -> None:
        """See DeltaTaker."""
        if block := self.block(delta):
            self._stream.send_now(block)

    def block(self, delta: TextDelta) -> bytes:
        """Its events; none at all where it tells nothing yet."""
        opening = b""
        if not self._has_begun:
            self._has_begun = True
            opening = self._telling.begin(self._tally.usage())
        self._tally.count(0, delta)
        parts = self._shape.parts(0, delta)
        self.ending = self._shape.ending(0, delta)
        return opening + self._telling.take(parts)


class _Gathered(DeltaTaker):
    """The parts of an answer in one piece."""

    def __init__(self, shape: TellingShape, tally: Tally) -> None:
        self._shape = shape
        self._tally = tally
        self.parts = GatheredParts()
        self.ending = NO_END

    def is_ready(self) -> bool:
        """See DeltaTaker."""
        return True

    def take(self, delta: TextDelta) -> None:
        """See DeltaTaker."""
        self._tally.count(0, delta)
        self.parts.add(self._shape.parts(0, delta))
        self.ending = self._shape.ending(0, delta)
