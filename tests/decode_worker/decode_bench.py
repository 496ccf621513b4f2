"""A decode worker's gRPC service over a scripted engine, and a router's end of a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc

from cluster.generation import FinishReason, GeneratedToken, Usage
from cluster.identity import Role, WorkerKey
from cluster.pairing import Pairing
from cluster.process.lifespan import Lifespan, ProcessState
from cluster.rpc import RpcServer, open_channel
from cluster.sampling import SamplingParams
from cluster.wire import identity_from_wire, identity_to_wire, sampling_to_wire
from cluster.worker_identity import WorkerIdentity
from cluster.world import World
from decode_worker.service import DecodeWorker
from engine.contract.commands import Submit
from engine.contract.messages import Fetched, Frame, RequestEnded, Reserved, TokenEvent
from protos import handoff_pb2, worker_pb2, worker_pb2_grpc
from tests.kept_spans import KeptSpans
from worker.engine.host import EngineHost
from worker.engine.scripted_link import ScriptedLink
from worker.metrics import WorkerMetrics
from worker.role import RunningWorker

PAIRING = Pairing(
    weights_digest="aa",
    tokenizer_digest="bb",
    dtype="float32",
    block_size_tokens=4,
    num_layers=1,
    num_kv_heads=1,
    head_dim=4,
)
KEY = WorkerKey("decode-a", "incarnation-1")
PATIENCE_S = 5.0


@dataclass
class RouterEnd:
    """One session, as a router holds it; says whom it means before anything else."""

    call: grpc.aio.StreamStreamCall
    meant: WorkerIdentity
    frames: list[worker_pb2.WorkerFrame] = field(default_factory=list)
    is_open: bool = False
    opened: WorkerIdentity | None = None

    async def submit(
        self,
        request_id: str,
        *targets,
        num_tokens: int = 8,
        timeout_ms=20_000.0,
        trace: handoff_pb2.TraceParent | None = None,
        **sampling,
    ) -> None:
        params = SamplingParams(**{"max_tokens": 4} | sampling)
        submit = worker_pb2.Submit(
            request_id=request_id,
            token_ids=range(num_tokens),
            sampling=sampling_to_wire(params),
            prefill=targets,
            cache_root=bytes(16),
            timeout_ms=timeout_ms,
            trace=trace,
        )
        await self.say(submit=submit)

    async def say(self, **fields) -> None:
        """Any message, also what no router of ours would say."""
        if not self.is_open:
            self.is_open = True
            open_message = worker_pb2.RouterMessage(open=identity_to_wire(self.meant))
            await self.call.write(open_message)
        await self.call.write(worker_pb2.RouterMessage(**fields))

    async def cancel(self, request_id: str) -> None:
        cancel = worker_pb2.Cancel(request_id=request_id)
        await self.say(cancel=cancel)

    async def finish(self, request_id: str, *choices: int) -> None:
        finish = worker_pb2.Finish(request_id=request_id, choices=choices)
        await self.say(finish=finish)

    async def next_frame(self) -> worker_pb2.WorkerFrame:
        async with asyncio.timeout(PATIENCE_S):
            frame = await self.call.read()
        assert frame is not grpc.aio.EOF, "the worker ended the session"
        if frame.HasField("opened"):
            self.opened = identity_from_wire(frame.opened)
            return await self.next_frame()
        assert self.opened == self.meant, "the worker did not say who it is"
        self.frames.append(frame)
        return frame

    async def ended(self, request_id: str) -> worker_pb2.Ended:
        """Reads until the request's Ended."""
        while True:
            for ended in (await self.next_frame()).ended:
                if ended.request_id == request_id:
                    return ended

    def tokens(self, request_id: str) -> list[int]:
        """Token ids read so far."""
        return [
            token.token_id
            for frame in self.frames
            for tokens in frame.tokens
            if tokens.request_id == request_id
            for token in tokens.tokens
        ]


def router_end(channel: grpc.aio.Channel, meant: WorkerIdentity) -> RouterEnd:
    return RouterEnd(worker_pb2_grpc.DecodeWorkerStub(channel).Session(), meant)


@dataclass
class Bench:
    """Everything that a test touches."""

    link: ScriptedLink
    engine: EngineHost
    worker: RunningWorker
    service: DecodeWorker
    server: RpcServer
    channel: grpc.aio.Channel

    def open_session(self) -> RouterEnd:
        return router_end(self.channel, WorkerIdentity(KEY, PAIRING))

    async def submitted(self, count: int = 1) -> str:
        """The engine's id of the `count`-th request."""
        return (await self.link.wait_for(Submit, count)).request.request_id

    def reserve(self, engine_id: str, *, first_block: int = 0, num_blocks: int = 2) -> None:
        self.link.say(Frame(reserved=[Reserved(engine_id, first_block, list(range(num_blocks)))]))

    def fetched(self, fetch, *, error: str = "", num_verified: int | None = None) -> None:
        """The intake has answered."""
        count = fetch.span.num_blocks if num_verified is None else num_verified
        answer = Fetched(
            fetch.request_id,
            fetch.incarnation,
            fetch.span.first_index,
            count,
            64 * count,
            2.0,
            error,
        )
        self.link.say(Frame(fetched=[answer]))

    def emit(self, engine_id: str, token_id: int, *, last: bool = False) -> None:
        self.link.say(Frame(tokens=[token_event(engine_id, token_id, last=last)]))

    def end(self, engine_id: str, *, code: str = "", message: str = "") -> None:
        self.link.say(Frame(ended=[ended_event(engine_id, code=code, message=message)]))


def token_event(engine_id: str, token_id: int, *, last: bool = False) -> TokenEvent:
    reason = FinishReason.LENGTH if last else None
    return TokenEvent(engine_id, 0, GeneratedToken(token_id), reason)


def ended_event(engine_id: str, *, code: str = "", message: str = "") -> RequestEnded:
    return RequestEnded(
        request_id=engine_id,
        usage=Usage(8, 2, 4),
        queue_ms=5.0,
        prefill_ms=50.0,
        error_code=code,
        error_message=message,
    )


def decode_worker(progress_timeout_s: float = 20.0) -> DecodeWorker:
    return DecodeWorker(progress_timeout_s, World())


@asynccontextmanager
async def running_decode_worker(
    progress_timeout_s: float = 20.0, tracing: KeptSpans | None = None
) -> AsyncIterator[Bench]:
    """The service on a free port, ready."""
    link = ScriptedLink()
    engine = EngineHost(link)
    ready = await engine.start()
    lifespan = Lifespan()
    lifespan.advance(ProcessState.READY)
    worker = RunningWorker(
        key=KEY,
        engine=engine,
        ready=ready,
        pairing=PAIRING,
        lifespan=lifespan,
        metrics=WorkerMetrics(Role.DECODE, KEY.worker_id),
        tracing=tracing,
    )
    service = decode_worker(progress_timeout_s)
    server = RpcServer("127.0.0.1", 0)
    service.register(server)
    service.open(worker)
    channel = open_channel(f"127.0.0.1:{await server.start()}")
    try:
        yield Bench(link, engine, worker, service, server, channel)
    finally:
        await channel.close()
        await service.close()
        await server.stop(0)
        await engine.stop()


def outcomes_of(bench: Bench) -> dict[str, float]:
    """Handoffs and given-up sources that were counted."""
    names = ("splitserve_worker_handoffs_total", "splitserve_worker_kv_transfer_failures_total")
    return {
        next(iter(sample.labels.values())): sample.value
        for metric in bench.worker.metrics.registry.collect()
        for sample in metric.samples
        if sample.name in names
    }
