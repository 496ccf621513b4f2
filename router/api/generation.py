"""A generation under way, written to its client: in one piece or as a stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from cluster.errors import Cancelled, SplitserveError
from cluster.process.loop_share import LoopShare
from router.api.answers.bodies import UsageBody
from router.api.answers.shape import AnswerShape, ChunkFrame, Envelope, GatheredChoice
from router.api.answers.tally import Tally
from router.api.http.errors import error_body
from router.api.http.event_stream import EventStream
from router.api.http.exchange import Exchange
from router.api.reading.plan import AnswerOptions
from router.dispatch.stream import Completed
from router.front.events import ScoredPrompt
from router.front.fan_out import IndexedEvent
from router.front.resumption import Resumable
from router.text.choice import TextDelta


@dataclass(slots=True, kw_only=True)
class Generation:
    """One request's events with the words to tell them in."""

    events: AsyncGenerator[IndexedEvent, None]
    shape: AnswerShape
    envelope: Envelope
    tally: Tally
    num_choices: int
    """Per prompt."""
    num_prompts: int
    options: AnswerOptions
    share: LoopShare
    """Of the turns of the loop, for deltas that bring logprobs: a millisecond of work at worst."""
    resumable: Resumable | None = None
    """Of a stream that another connection may have the rest of, or has had the beginning of."""
    ping_interval_s: float = 0.0
    """Of silence in a stream, before a sign of life; 0: never."""

    async def answer(self, exchange: Exchange) -> None:
        """Runs to the end. Closing the events, whatever happens, cancels them upstream."""
        async with aclosing(self.events) as events:
            if self.options.stream:
                await self._stream(exchange, events)
            else:
                await self._whole(exchange, events)

    async def _whole(self, exchange: Exchange, events: AsyncGenerator[IndexedEvent, None]) -> None:
        num_choices = self.num_prompts * self.num_choices
        gathered = [self.shape.gathered(index) for index in range(num_choices)]
        async for prompt, event in events:
            if isinstance(event, Completed):
                self.tally.end(event)
            elif isinstance(event, ScoredPrompt):
                await self.shape.take_prompt(prompt, event)
            else:
                gathered[self._index(prompt, event)].add(event)
                if event.tokens:
                    await self.share.breathe()
        await exchange.reply(await self._body(gathered))

    async def _body(self, gathered: Sequence[GatheredChoice]) -> bytes:
        choices = []
        for each in gathered:
            choices.append(each.whole())
            await self.share.breathe()
        return self.envelope.encode(
            self.shape.object_name,
            choices,
            usage=self.tally.usage(),
            timing=self.tally.timing if self.options.timings else None,
            prompt_logprobs=self.shape.prompt_logprobs,
        )

    async def _stream(self, exchange: Exchange, events: AsyncGenerator[IndexedEvent, None]) -> None:
        """Headers go out with the first event or ping: what fails before has its own status."""
        async with EventStream(exchange, self.ping_interval_s) as stream:
            try:
                await self._send_events(stream, events)
            except Cancelled:
                raise
            except SplitserveError as error:
                if not stream.started:
                    raise
                await stream.send(error_body(error))
            await stream.end()

    async def _send_events(
        self, stream: EventStream, events: AsyncGenerator[IndexedEvent, None]
    ) -> None:
        frame = ChunkFrame(self.envelope, self.shape.chunk_object_name)
        seen = set() if self.resumable is None else self.resumable.place.begun_choices
        async for prompt, event in events:
            if isinstance(event, TextDelta):
                if (chunk := self._chunk(prompt, event, seen, frame)) is None:
                    continue
                if not stream.send_now(chunk):
                    await stream.send(chunk)
                if event.tokens:
                    await self.share.breathe()
            elif isinstance(event, Completed):
                self.tally.end(event)
            else:
                await self.shape.take_prompt(prompt, event)
        if self.options.include_usage or self.options.timings:
            await stream.send(self._named(self._last_chunk()))

    def _index(self, prompt: int, delta: TextDelta) -> int:
        index = prompt * self.num_choices + delta.choice
        self.tally.count(index, delta)
        return index

    def _chunk(
        self, prompt: int, delta: TextDelta, seen: set[int], frame: ChunkFrame
    ) -> bytes | None:
        """None: the client has it."""
        index = self._index(prompt, delta)
        if self.resumable is not None:
            if (rest := self.resumable.place.rest_of(delta)) is None:
                return None
            delta = rest
        choice = self.shape.chunk(index, delta, first=index not in seen)
        seen.add(index)
        return self._named(frame.encode(choice, self._chunk_usage()))

    def _named(self, data: bytes) -> bytes:
        """With a line of its own for the event's id, where there is one."""
        event_id = None if self.resumable is None else self.resumable.event_id
        return data if event_id is None else b"%b\nid: %b" % (data, event_id.encode())

    def _chunk_usage(self) -> UsageBody | None | msgspec.UnsetType:
        if self.options.continuous_usage:
            return self.tally.usage()
        return None if self.options.include_usage else msgspec.UNSET

    def _last_chunk(self) -> bytes:
        return self.envelope.encode(
            self.shape.chunk_object_name,
            [],
            usage=self.tally.usage() if self.options.include_usage else msgspec.UNSET,
            timing=self.tally.timing if self.options.timings else None,
        )
