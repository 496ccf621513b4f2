"""TextWork by processes: one for chats and longer texts, one for large bodies, one for grammars
from the first of them on, and one to spare.

Several, so that a short chat never waits for a body of megabytes. Each takes one task at a time;
when it ends, the spare one takes its place, and another is started to be the spare.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from cluster.deadline import Clock, Sleep
from cluster.grammar import Grammar
from cluster.process.background import Background, Loss
from router.front.caller import NOBODY, Caller
from router.front.generation_request import ChatPrompt, TextPrompt
from router.front.text_work import Door, ReadBody
from router.telemetry.metrics import TextMetrics
from router.text_worker.lane import TextLane
from router.text_worker.messages import EncodeChat, EncodeText, ReadLarge, Setup, TryGrammar
from router.text_worker.spare import SpareProcess

BODY_NICENESS = 5
"""A quarter of a core's time beside a busy engine: megabytes wait, streams do not."""


class TextWorkers:
    """The TextWork of a real router."""

    def __init__(
        self,
        setup: Setup,
        metrics: TextMetrics | None = None,
        *,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        metrics = metrics or TextMetrics(CollectorRegistry())
        self._spare = spare = SpareProcess(setup)
        self._texts = TextLane(setup, "text-worker", metrics, spare=spare, clock=clock)
        self._bodies = TextLane(
            setup, "body-worker", metrics, spare=spare, niceness=BODY_NICENESS, clock=clock
        )
        self._grammars = TextLane(
            setup,
            "grammar-worker",
            metrics,
            spare=spare,
            niceness=BODY_NICENESS,
            with_grammars=True,
            clock=clock,
        )
        self._has_grammars = False
        metrics.watch(
            "grammar-worker",
            num_waiting=lambda: self._grammars.num_waiting,
            absent_s=lambda: self._grammars.absent_s if self._has_grammars else 0.0,
        )
        for name, lane in (("text-worker", self._texts), ("body-worker", self._bodies)):
            metrics.watch(name, num_waiting=_waiting_of(lane), absent_s=_absence_of(lane))
        self._background = Background(_go_on, clock=clock, sleep=sleep)

    @property
    def num_waiting(self) -> int:
        """Tasks that have not been begun."""
        return sum(lane.num_waiting for lane in (self._texts, self._bodies, self._grammars))

    def why_not_ready(self) -> str | None:
        """See TextWork."""
        return self._texts.why_not_ready() or self._bodies.why_not_ready()

    async def start(self) -> None:
        """See TextWork."""
        self._background.keep("text-worker", self._texts.run)
        self._background.keep("body-worker", self._bodies.run)
        self._background.keep("spare text worker", self._spare.run)

    async def encode(
        self, prompt: TextPrompt | ChatPrompt, max_context_tokens: int, caller: Caller = NOBODY
    ) -> list[int]:
        """See TextWork."""
        if isinstance(prompt, TextPrompt):
            task: EncodeText | EncodeChat = EncodeText(
                prompt.text, prompt.add_special, max_context_tokens, prompt.keep_last, prompt.pair
            )
        else:
            task = EncodeChat(
                prompt.messages,
                prompt.rendering,
                max_context_tokens,
                prompt.keep_last,
                prompt.talk,
            )
        done = await self._texts.call(task, caller=caller)
        return done.prompts[0].token_ids

    async def read(
        self, door: Door, body: bytes, max_context_tokens: int, caller: Caller = NOBODY
    ) -> ReadBody:
        """See TextWork."""
        return await self._bodies.call(ReadLarge(door, max_context_tokens), body, caller=caller)

    async def try_grammar(self, grammar: Grammar, caller: Caller = NOBODY) -> None:
        """See TextWork. Most routers never see a grammar: the process comes with the first."""
        if not self._has_grammars:
            self._has_grammars = True
            self._grammars.expect()
            self._background.keep("grammar-worker", self._grammars.run)
        await self._grammars.call(TryGrammar(grammar), caller=caller)

    async def close(self) -> None:
        """See TextWork."""
        await self._background.close()
        self._texts.close()
        self._bodies.close()
        self._grammars.close()


def _waiting_of(lane: TextLane) -> Callable[[], int]:
    return lambda: lane.num_waiting


def _absence_of(lane: TextLane) -> Callable[[], float]:
    return lambda: lane.absent_s


def _go_on(loss: Loss) -> None:
    """Nothing here is needed in Background's sense: lanes and spare are kept."""
