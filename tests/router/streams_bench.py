"""Clients of a router whose workers come, go and are lost."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

from msgspec import structs

from cluster.generation import EngineLoad, FinishReason, Timing, Usage
from cluster.sampling import SamplingParams
from router.control.plane import FleetPlane
from router.dispatch.stream import Completed
from router.front.generation_request import GenerationRequest, TokenPrompt, Wishes
from router.telemetry.request_trace import RequestTrace
from router.text.choice import ShownToken, TextDelta
from tests.router.dispatch_bench import PROMPT, is_idle, router, time_limits
from tests.router.fake_decode_worker import until
from tests.router.front_fakes import pipeline_over
from tests.router.model_worker import ModelWorker, Trouble

LENGTH = 42


def wishes(n: int = 1, **changes: object) -> Wishes:
    sampling = SamplingParams(max_tokens=1, n=n, logprobs=changes.pop("logprobs", None))  # type: ignore[arg-type]
    fields: dict[str, object] = {"max_tokens": LENGTH, "seed": 7}
    return Wishes(sampling=sampling, **(fields | changes))  # type: ignore[arg-type]


KINDS = {
    "one choice": wishes(),
    "two choices": wishes(n=2),
    "logprobs": wishes(logprobs=0, keep_tokens=True),
    "a stop string": wishes(stop=("STOP",)),
    "a stop string of two choices": wishes(n=2, stop=("STOP",), keep_tokens=True, logprobs=0),
}
"""STOP stands for what choice 0 says behind its 29th token."""


@dataclass
class Answer:
    """What a client has got."""

    texts: dict[int, str] = field(default_factory=dict)
    tokens: dict[int, list[ShownToken]] = field(default_factory=dict)
    reasons: dict[int, FinishReason] = field(default_factory=dict)
    usage: Usage | None = None
    timing: Timing = field(default_factory=Timing, compare=False)

    def take(self, delta: TextDelta) -> None:
        assert delta.choice not in self.reasons
        self.texts[delta.choice] = self.texts.get(delta.choice, "") + delta.text
        self.tokens.setdefault(delta.choice, []).extend(delta.tokens)
        if delta.finish_reason is not None:
            self.reasons[delta.choice] = delta.finish_reason


@dataclass
class Bench:
    """A router, its workers, and what becomes of them."""

    plane: FleetPlane
    workers: list[ModelWorker]
    troubles: dict[str, list[Trouble]]

    async def ask(
        self,
        request_id: str,
        asked: Wishes,
        *troubles: Trouble,
        trace: RequestTrace | None = None,
    ) -> Answer:
        self.troubles[request_id] = list(troubles)
        request = GenerationRequest(
            request_id=request_id,
            prompt=TokenPrompt(PROMPT),
            wishes=asked,
            limits=time_limits(60.0),
            trace=trace,
        )
        pipeline, answer = pipeline_over(self.plane.source), Answer()
        prepared = await pipeline.prepare(request)
        async with aclosing(pipeline.stream(prepared)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    answer.take(event)
                elif isinstance(event, Completed):
                    answer.usage, answer.timing = event.usage, event.timing
        return answer

    def continued(self, cause: str) -> float:
        labels = {"cause": cause}
        name = "splitserve_streams_continued_total"
        return self.plane.registry.get_sample_value(name, labels) or 0.0

    def given(self, request_id: str) -> list[tuple[ModelWorker, list[int]]]:
        """Who was sent the request, and how much of each choice with it, in no order."""
        return [
            (worker, [len(item.token_ids) for item in submit.resume])
            for worker in self.workers
            for submit in worker.submitted
            if submit.request_id == request_id
        ]

    def holder_of(self, request_id: str) -> ModelWorker:
        [(worker, _)] = self.given(request_id)
        return worker

    async def drain(self, worker: ModelWorker) -> None:
        """Its next beat says so."""
        key = worker.member().key
        await self.plane.store.beat(key, EngineLoad(), draining=True)


@asynccontextmanager
async def bench(num_workers: int = 2, **options: int) -> AsyncIterator[Bench]:
    troubles: dict[str, list[Trouble]] = {}
    workers = [ModelWorker(f"decode-{number}", troubles) for number in range(num_workers)]
    async with router(*workers, **options) as plane:
        yield Bench(plane, workers, troubles)
        await until(lambda: is_idle(plane))


async def undisturbed(bench: Bench, kind: str) -> tuple[Wishes, Answer]:
    """With the stop string that is meant."""
    asked = KINDS[kind]
    if asked.stop:
        whole = await bench.ask("unstopped", structs.replace(asked, stop=()))
        asked = structs.replace(asked, stop=(whole.texts[0][29:33],))
    return asked, await bench.ask("undisturbed", asked)
