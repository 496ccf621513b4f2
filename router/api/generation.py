"""A generation under way, written to its client: in one piece or as a stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

import msgspec

from cluster.errors import Cancelled, SplitserveError
from cluster.process.loop_share import LoopShare
from router.api.answers.shape import AnswerShape, Envelope, GatheredChoice
from router.api.answers.tally import Tally
from router.api.delta_takers import ChunkWriter, EventTaker, GatheringTaker
from router.api.http.errors import error_body
from router.api.http.event_stream import EventStream
from router.api.http.exchange import Exchange
from router.api.reading.plan import AnswerOptions
from router.dispatch.stream import Completed
from router.front.events import DeltaTaker, ScoredPrompt
from router.front.fan_out import IndexedEvent
from router.front.resumption import Resumable
from router.text.choice import TextDelta

BeginEvents = Callable[[DeltaTaker], AsyncGenerator[IndexedEvent, None]]
"""Begins the events of a request. Of one prompt the taker may be given deltas, which are then not
among them."""


class Generation(msgspec.Struct, kw_only=True):
    """One request's events with the words to tell them in."""

    begin: BeginEvents
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
        if self.options.stream:
            await self._stream(exchange)
        else:
            await self._whole(exchange)

    async def _whole(self, exchange: Exchange) -> None:
        num_choices = self.num_prompts * self.num_choices
        gathered = [self.shape.gathered(index) for index in range(num_choices)]
        async with aclosing(self.begin(GatheringTaker(gathered, self.tally))) as events:
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

    async def _stream(self, exchange: Exchange) -> None:
        """Headers go out with the first event or ping: what fails before has its own status."""
        async with EventStream(exchange, self.ping_interval_s) as stream:
            try:
                await self._send_events(stream)
            except Cancelled:
                raise
            except SplitserveError as error:
                if not stream.started:
                    raise
                await stream.send(error_body(error))
            await stream.end()

    async def _send_events(self, stream: EventStream) -> None:
        writer = self._writer()
        async with aclosing(self.begin(EventTaker(writer, stream))) as events:
            async for prompt, event in events:
                if isinstance(event, TextDelta):
                    if (chunk := writer.chunk(prompt, event)) is None:
                        continue
                    await self._send(stream, chunk)
                    if event.tokens:
                        await self.share.breathe()
                elif isinstance(event, Completed):
                    self.tally.end(event)
                else:
                    await self.shape.take_prompt(prompt, event)
        if self.options.include_usage or self.options.timings:
            await stream.send(writer.named(self._last_chunk()))

    async def _send(self, stream: EventStream, chunk: bytes) -> None:
        if stream.takes_now():
            stream.send_now(chunk)
        else:
            await stream.send(chunk)

    def _writer(self) -> ChunkWriter:
        return ChunkWriter(
            self.shape,
            self.envelope,
            self.tally,
            self.options,
            num_choices=self.num_choices,
            resumable=self.resumable,
        )

    def _index(self, prompt: int, delta: TextDelta) -> int:
        index = prompt * self.num_choices + delta.choice
        self.tally.count(index, delta)
        return index

    def _last_chunk(self) -> bytes:
        return self.envelope.encode(
            self.shape.chunk_object_name,
            [],
            usage=self.tally.usage() if self.options.include_usage else msgspec.UNSET,
            timing=self.tally.timing if self.options.timings else None,
        )
