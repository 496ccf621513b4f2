"""Routers that keep streams, over workers they share; and clients whose connections break."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from cluster.deadline import Clock
from cluster.world import World
from router.dispatch.stream import Completed, TokenSource
from router.front.generation_request import GenerationRequest, TokenPrompt, Wishes
from router.front.resumption import Resumable, Resumption
from router.resume.kept_answer import KeptAnswer
from router.resume.kept_answers import KeepingLimits, KeptAnswers
from router.resume.record import read
from router.resume.shared_answers import AnswersAway, SharedAnswers, TakenAnswer
from router.resume.write_behind import WriteBehind
from router.telemetry.resume_metrics import ResumeMetrics
from router.tenants.tenant import ANYBODY, Tenant
from router.text.choice import TextDelta
from tests.router.dispatch_bench import PROMPT, time_limits
from tests.router.front_fakes import byte_model, pipeline_over
from tests.router.streams_bench import Answer

DOOR = "chat"
LIMITS = KeepingLimits(within_s=60.0, max_bytes=1 << 26, max_answers=100)


@dataclass
class SharedMemory:
    """What routers share, as Redis has it: a write of an earlier epoch is refused, and one that
    goes on from what is not there is told so."""

    is_away: bool = False
    answers: dict[bytes, TakenAnswer] = field(default_factory=dict)

    async def write(self, answers: Sequence[KeptAnswer]) -> list[bool]:
        if self.is_away:
            raise AnswersAway
        return [self._write(each) for each in answers]

    async def remove(self, forgotten: Mapping[bytes, int]) -> None:
        if self.is_away:
            raise AnswersAway
        for key, epoch in forgotten.items():
            if key in self.answers and self.answers[key].epoch <= epoch:
                del self.answers[key]

    async def head(self, key: bytes) -> bytes | None:
        if self.is_away:
            raise AnswersAway
        return self.answers[key].head if key in self.answers else None

    def wipe(self) -> None:
        """As an operator empties a store, or one that kept nothing on disk comes back."""
        self.answers.clear()

    async def take(self, key: bytes) -> TakenAnswer | None:
        if self.is_away:
            raise AnswersAway
        if (found := self.answers.get(key)) is None:
            return None
        taken = TakenAnswer(found.epoch + 1, found.head, list(found.batches))
        self.answers[key] = taken
        return taken

    def _write(self, answer: KeptAnswer) -> bool:
        found = self.answers.get(answer.key)
        if found is not None and found.epoch > answer.epoch:
            return False
        if len([] if found is None else found.batches) < answer.num_shared:
            answer.num_shared = 0  # missing: all of it comes with the next write
            return True
        batches = [] if found is None else found.batches[: answer.num_shared]
        batches += answer.batches[answer.num_shared :]
        self.answers[answer.key] = TakenAnswer(answer.epoch, answer.head, batches)
        answer.num_shared = len(answer.batches)
        return True


class KeepingRouter:
    """One of them."""

    def __init__(
        self,
        source: TokenSource,
        shared: SharedAnswers | None = None,
        limits: KeepingLimits = LIMITS,
        clock: Clock | None = None,
    ) -> None:
        world = World() if clock is None else World(clock=clock)
        self.pipeline = pipeline_over(source)
        self.answers = KeptAnswers(limits, world.clock)
        share = self.pipeline.share
        metrics = ResumeMetrics(CollectorRegistry())
        self.resumption = Resumption(
            byte_model(), self.answers, shared, share=share, metrics=metrics
        )
        self.behind = WriteBehind(self.answers, shared, world.clock, world.sleep)

    async def begin(self, request_id: str, asked: Wishes, tenant: Tenant = ANYBODY) -> Resumable:
        request = GenerationRequest(
            request_id=request_id,
            tenant=tenant,
            prompt=TokenPrompt(PROMPT),
            wishes=asked,
            limits=time_limits(60.0),
        )
        prepared = await self.pipeline.prepare(request)
        return self.resumption.begin(prepared, tenant, door=DOOR, told_as=b"as before")

    async def resume(
        self, event_id: str, request_id: str = "again", tenant: Tenant = ANYBODY
    ) -> Resumable:
        limits = time_limits(60.0)
        return await self.resumption.resume(event_id, tenant, request_id, limits, door=DOOR)


async def has_told(router: KeepingRouter, part: Resumable, num_tokens: int) -> None:
    """Until so many tokens were relayed of one choice at least."""
    async with asyncio.timeout(30):
        while True:
            router.answers.write(part.keeper)
            record = await read(part.keeper.batches, router.pipeline.share)
            choices = {each.choice for each in record.past.told}
            if any(len(record.past.token_ids_of(each)) >= num_tokens for each in choices):
                return
            await asyncio.sleep(0)


@dataclass
class Client:
    """Of one answer, over all of its connections. `ids` has the id of every event it was told."""

    answer: Answer = field(default_factory=Answer)
    ids: list[str] = field(default_factory=list)

    async def read(
        self,
        router: KeepingRouter,
        part: Resumable,
        up_to_events: int | None = None,
        *,
        written_at: int | None = None,
    ) -> None:
        """Until it has so many events in all: then its connection breaks. `written_at`: how many it
        has when the router writes what it has relayed."""
        async with aclosing(router.pipeline.stream(part.prepared)) as events:
            async for event in events:
                if isinstance(event, Completed):
                    self.answer.usage, self.answer.timing = event.usage, event.timing
                    await router.behind.look()
                elif isinstance(event, TextDelta) and (rest := part.place.rest_of(event)):
                    self.answer.take(rest)
                    assert part.event_id is not None
                    self.ids.append(part.event_id)
                if len(self.ids) == written_at:
                    await router.behind.look()
                if up_to_events is not None and len(self.ids) >= up_to_events:
                    return
