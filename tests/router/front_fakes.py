"""A tokenizer of bytes, a template, a scripted dispatcher, and a whole front on a real port."""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs
from prometheus_client import CollectorRegistry

from cluster.errors import InvalidRequest, QueueFull
from cluster.generation import FinishReason, GeneratedToken, PromptToken, Timing, Usage
from cluster.models.pooling import Pooling
from cluster.process.background import Loss
from cluster.process.lifespan import Lifespan
from cluster.process.loop_share import LoopShare
from router.api.http.server import HttpServer
from router.api.status_endpoints import StatusEndpoints
from router.app import build_app
from router.dispatch.running_choices import RunningChoices
from router.dispatch.stream import (
    ChoiceTokens,
    Completed,
    Newcomer,
    PromptTokens,
    RoutedRequest,
    StreamEvent,
    TokenSource,
)
from router.dispatch.time_limits import DefaultTimes
from router.fleet.token_taker import TakerFault, TokenTaker
from router.front.body_account import BodyAccount
from router.front.doors import DoorContext
from router.front.limits import DoorLimits
from router.front.pipeline import CompletionPipeline
from router.front.resumption import Resumption
from router.front.served_model import ServedModel
from router.front.text_work import TextWork
from router.resume.kept_answers import KeepingLimits, KeptAnswers
from router.telemetry.resume_metrics import ResumeMetrics
from router.text.choice_count import ChoiceCount, new_counts
from router.text_worker.in_process import InProcessText
from router.tools.detection import manners_of

EOS = 256
VOCAB_SIZE = 300
CONTEXT_TOKENS = 512
MODEL = "byte-model"


class ByteStream:
    """UTF-8, byte by byte."""

    def __init__(self, shows_special: bool = False) -> None:
        self._shows_special = shows_special
        self._held = b""

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def step(self, token_id: int) -> str:
        if token_id >= EOS:
            return "<eos>" if self._shows_special else ""
        self._held += bytes([token_id])
        try:
            text = self._held.decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                return ""
            text = self._held.decode(errors="replace")
        self._held = b""
        return text

    def finish(self) -> str:
        held, self._held = self._held, b""
        return held.decode(errors="replace")


class ByteTokenizer:
    """Ids 0 to 255 are bytes; 256 ends a sequence."""

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        return list(text.encode())

    def encode_pair(self, text: str, other: str) -> list[int]:
        return [*text.encode(), EOS, *other.encode()]

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(i for i in token_ids if i < EOS).decode(errors="replace")

    def new_stream(
        self, prompt_tail_ids: Sequence[int] = (), *, shows_special: bool = False
    ) -> ByteStream:
        return ByteStream(shows_special)

    def token_text(self, token_id: int) -> str:
        return self.token_bytes(token_id).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < EOS else b"<eos>"


class PlainTemplate:
    """`role:content` lines."""

    takes = frozenset({"messages"})

    def is_short(self, messages: Sequence[tuple[str, str]]) -> bool:
        return False

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        if any(message["content"] == "refuse me" for message in messages):
            raise InvalidRequest("the template refuses this", param="messages")
        told = "".join(f"{name}={value}\n" for name, value in (variables or {}).items())
        opening = "" if add_generation_prompt else "|"
        return told + "".join(f"{m['role']}:{m['content']}\n" for m in messages) + opening


class ToolTemplate(PlainTemplate):
    """As that, and what stands beside the texts as lines of JSON."""

    takes = frozenset({"messages", "tools", "reasoning_effort"})

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        told = "".join(f"tool:{tool['function']['name']}\n" for tool in tools or ())
        for message in messages:
            beside = {k: v for k, v in message.items() if k not in ("role", "content")}
            told += f"+{json.dumps(beside)}\n" if beside else ""
        return told + super().render(messages, variables=variables)


Script = Callable[[RoutedRequest], AsyncGenerator[StreamEvent, None]]


def tokens_of(request: RoutedRequest, data: bytes) -> list[GeneratedToken]:
    """One token a byte; with logprobs when asked for."""
    count = request.sampling.logprobs
    if count is None:
        return [GeneratedToken(byte) for byte in data]
    return [
        GeneratedToken(byte, -0.5, tuple((65 + rank, -0.5 - rank) for rank in range(count)))
        for byte in data
    ]


def scores_of(request: RoutedRequest) -> list[PromptToken]:
    """Token n of the prompt has logprob -n / 8 and rank 2; above it `A`, and below `B`."""
    count = request.sampling.prompt_logprobs
    assert count is not None
    return [
        PromptToken(token_id, -index / 8, 2, ((65, -index / 16), (66, -index / 4))[:count])
        for index, token_id in enumerate(request.token_ids[1:], start=1)
    ]


def scores_and_says(text: str) -> Script:
    """The prompt's scores in two parts where they are asked for, then as `says`."""

    async def run(request: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        if request.sampling.prompt_logprobs is not None:
            scores = scores_of(request)
            yield PromptTokens(1, scores[:2])
            yield PromptTokens(3, scores[2:])
        async for event in says(text, ends_with_eos=False)(request):
            yield event

    return run


def completed(request: RoutedRequest, num_tokens: int, cached_tokens: int = 3) -> Completed:
    usage = Usage(len(request.token_ids), num_tokens, cached_tokens)
    timing = Timing(ttft_ms=12.5, queue_ms=2.0, decode_worker="d0")
    return Completed(usage, timing, adapter_digest=request.adapter_digest)


def says(text: str, *, ends_with_eos: bool = True) -> Script:
    """Every choice says `text`, one byte a step, all choices in turn."""

    async def run(request: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        data = tokens_of(request, text.encode())[: request.sampling.max_tokens]
        for token in data:
            for choice in range(request.sampling.n):
                await asyncio.sleep(0)
                yield ChoiceTokens(choice, [token])
        reason = FinishReason.STOP if ends_with_eos else FinishReason.LENGTH
        last = [GeneratedToken(EOS)] if ends_with_eos else []
        for choice in range(request.sampling.n):
            yield ChoiceTokens(choice, last, reason)
        yield completed(request, request.sampling.n * (len(data) + len(last)))

    return run


def fails(error: Exception, after: str = "") -> Script:
    """Says `after`, then fails."""

    async def run(request: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        if after:
            yield ChoiceTokens(0, tokens_of(request, after.encode()))
        raise error

    return run


def talks_forever(text: str = "x") -> Script:
    """Never ends by itself."""

    async def run(request: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        while True:
            await asyncio.sleep(0)
            yield ChoiceTokens(0, tokens_of(request, text.encode()))

    return run


def hangs() -> Script:
    """Never says anything."""

    async def run(request: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        await asyncio.Event().wait()
        yield completed(request, 0)

    return run


@dataclass
class FakeSource:
    """A TokenSource that follows a script and notes what is asked and what is closed."""

    script: Script
    requests: list[RoutedRequest] = field(default_factory=list)
    num_closed: int = 0
    finished: list[int] = field(default_factory=list)
    """Choices that the front has had enough of, in order."""
    full: QueueFull | None = None
    """What newcomers are told; None: there is room for them."""
    newcomers: list[Newcomer] = field(default_factory=list)

    def check_room(self, newcomer: Newcomer) -> None:
        self.newcomers.append(newcomer)
        if self.full is not None:
            raise self.full

    def finish(self, choice: int, *, is_last: bool) -> None:
        self.finished.append(choice)

    async def generate(
        self,
        request: RoutedRequest,
        counts: Sequence[ChoiceCount] | None = None,
        taker: TokenTaker | None = None,
    ) -> AsyncGenerator[StreamEvent, None]:
        """The taker is given all but the first tokens, whenever it is ready."""
        self.requests.append(request)
        run, has_begun = self.script(request), False
        choices = RunningChoices(counts or new_counts(request.sampling.n), request.resume)
        choices.run_by(self)
        try:
            async for event in run:
                if isinstance(event, Completed):
                    told = choices.summed_up((event.usage, event.timing))
                    event = structs.replace(event, usage=told[0], timing=told[1])
                if not isinstance(event, ChoiceTokens):
                    yield event
                elif choices.take(event):
                    if taker is not None and has_begun and taker.is_ready():
                        _give(taker, event)
                    else:
                        yield event
                    has_begun = True
                if choices.are_over and isinstance(event, ChoiceTokens) and self.finished:
                    yield completed(request, choices.num_tokens)
                    return
        finally:
            await run.aclose()
            self.num_closed += 1


def _give(taker: TokenTaker, event: ChoiceTokens) -> None:
    try:
        taker.take(event)
    except Exception as error:
        raise TakerFault(error) from error


@dataclass
class FakeReadiness:
    reason: str | None = None

    def why_not_ready(self) -> str | None:
        return self.reason


def byte_model() -> ServedModel:
    return ServedModel(
        name=MODEL,
        tokenizer=ByteTokenizer(),
        template=PlainTemplate(),
        vocab_size=VOCAB_SIZE,
        context_limit=lambda: CONTEXT_TOKENS,
        max_token_bytes=8,
        fingerprint="fp_test",
    )


def pooling_model(pooling: Pooling, hidden_size: int = 4) -> ServedModel:
    """A byte model that pools."""
    return replace(byte_model(), pooling=pooling, hidden_size=hidden_size)


def pools(values_of: Callable[[RoutedRequest], Sequence[float]]) -> Script:
    """Each prompt becomes these numbers."""

    async def run(request: RoutedRequest) -> AsyncGenerator[StreamEvent, None]:
        values = values_of(request)
        packed = struct.pack(f"<{len(values)}f", *values)
        yield ChoiceTokens(0, [], FinishReason.STOP, packed)
        yield completed(request, 0, cached_tokens=1)

    return run


def tool_model(tools: str = "hermes", thinks: str = "<think></think>") -> ServedModel:
    """A byte model whose template takes tools; `tools` names the format of its calls, `thinks` has
    the words around its thoughts, or nothing."""
    manners = manners_of(thinks, tools=tools)
    return replace(byte_model(), template=ToolTemplate(), manners=manners)


def pipeline_over(source: TokenSource) -> CompletionPipeline:
    """Of the byte model; texts are worked on in this process."""
    model = byte_model()
    return CompletionPipeline(model, source, InProcessText(model))


def resumption_over(pipeline: CompletionPipeline) -> Resumption:
    """Of one router, which shares nothing."""
    limits = KeepingLimits(within_s=60.0, max_bytes=1 << 26, max_answers=1000)
    answers = KeptAnswers(limits, time.monotonic)
    return Resumption(
        byte_model(),
        answers,
        None,
        share=pipeline.share,
        metrics=ResumeMetrics(CollectorRegistry()),
    )


@dataclass
class Front:
    """A running HTTP front."""

    source: FakeSource
    readiness: FakeReadiness
    in_flight: Lifespan
    port: int
    server: HttpServer
    share: LoopShare
    losses: list[Loss]
    """What has told that it ended."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def small_limits(**changes: float) -> DoorLimits:
    given = {"max_body_bytes": 200_000, "request_timeout_s": 5.0, "reader_timeout_s": 5.0}
    return DoorLimits(**{**given, **changes})  # type: ignore[arg-type]


@asynccontextmanager
async def running_front(
    script: Script | None = None,
    limits: DoorLimits | None = None,
    *,
    bodies: BodyAccount | None = None,
    ignores_unknown: bool = False,
    keeps_streams: bool = False,
    model: ServedModel | None = None,
    texts: TextWork | None = None,
) -> AsyncIterator[Front]:
    model = model or byte_model()
    source = FakeSource(script or says("Hello world"))
    texts = texts or InProcessText(model, ignores_unknown=ignores_unknown)
    pipeline = CompletionPipeline(model, source, texts)
    in_flight = Lifespan.opened("router")
    readiness = FakeReadiness()
    losses: list[Loss] = []
    bounds = limits or small_limits()
    door = DoorContext(
        model=model,
        pipeline=pipeline,
        in_flight=in_flight,
        door_limits=bounds,
        bodies=bodies or BodyAccount(1 << 30),
        times=DefaultTimes(first_token_s=30.0, between_tokens_s=30.0),
        ignores_unknown=ignores_unknown,
        resumption=resumption_over(pipeline) if keeps_streams else None,
    )
    app = build_app(door, StatusEndpoints(door, readiness, CollectorRegistry()))
    server = HttpServer(app, "127.0.0.1", 0, bounds, on_loss=losses.append, share=door.share)
    port = server.port
    await server.start()
    try:
        yield Front(source, readiness, in_flight, port, server, door.share, losses)
    finally:
        await server.stop()


async def until(condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    """Polls; fails with `what` when the condition does not come true in time."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"in {timeout_s} s it did not happen that {what}") from None
