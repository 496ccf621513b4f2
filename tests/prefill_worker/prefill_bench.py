"""A prefill worker's gRPC service over a scripted engine."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc

from cluster.block_span import BlockSpan
from cluster.deadline import Clock
from cluster.generation import FinishReason, GeneratedToken, Usage
from cluster.identity import Role, WorkerKey
from cluster.pairing import Pairing
from cluster.process.lifespan import Lifespan, ProcessState
from cluster.rpc import RpcServer, open_channel
from cluster.sampling import SamplingParams
from cluster.wire import sampling_to_wire
from cluster.world import World
from engine.contract.commands import Submit
from engine.contract.messages import Frame, Prefilled, RequestEnded, Started, TokenEvent
from prefill_worker.service import PrefillWorker
from protos import handoff_pb2, handoff_pb2_grpc
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
KEY = WorkerKey("prefill-a", "incarnation-1")


@dataclass
class Bench:
    """Everything that a test touches."""

    link: ScriptedLink
    engine: EngineHost
    worker: RunningWorker
    service: PrefillWorker
    server: RpcServer
    channel: grpc.aio.Channel
    stub: handoff_pb2_grpc.PrefillWorkerStub
    address: str

    async def submitted(self, count: int = 1) -> str:
        """The engine's id of the `count`-th request."""
        return (await self.link.wait_for(Submit, count)).request.request_id

    def compute_prompt(self, engine_id: str, num_blocks: int = 2) -> None:
        """The engine has computed a whole prompt in one chunk."""
        blocks, generations = list(range(num_blocks)), [1] * num_blocks
        digests = b"d" * 16 * num_blocks
        self.link.say(
            Frame(
                started=[Started(engine_id, 4)],
                tokens=[TokenEvent(engine_id, 0, GeneratedToken(7))],
                prefilled=[Prefilled(engine_id, BlockSpan(0, blocks, generations, digests))],
            )
        )

    def end_with_first_token(self, engine_id: str) -> None:
        """The last chunk gave a token that ends the request: its blocks are not announced."""
        token = TokenEvent(engine_id, 0, GeneratedToken(7), FinishReason.STOP)
        ended = RequestEnded(request_id=engine_id, usage=Usage(8, 1, 4))
        self.link.say(Frame(started=[Started(engine_id, 4)]))
        self.link.say(Frame(tokens=[token], ended=[ended]))


@asynccontextmanager
async def running_prefill_worker(
    key: WorkerKey = KEY,
    clock: Clock = time.monotonic,
    tracing: KeptSpans | None = None,
    pooling: str = "",
) -> AsyncIterator[Bench]:
    """The service on a free port, ready."""
    link = ScriptedLink()
    engine = EngineHost(link)
    ready = await engine.start()
    lifespan = Lifespan()
    lifespan.advance(ProcessState.READY)
    worker = RunningWorker(
        key=key,
        engine=engine,
        ready=ready,
        pairing=PAIRING,
        lifespan=lifespan,
        metrics=WorkerMetrics(Role.PREFILL, key.worker_id),
        tracing=tracing,
        pooling=pooling,
    )
    service, server = PrefillWorker(World(clock=clock)), RpcServer("127.0.0.1", 0)
    service.register(server)
    service.open(worker)
    address = f"127.0.0.1:{await server.start()}"
    channel = open_channel(address)
    stub = handoff_pb2_grpc.PrefillWorkerStub(channel)
    try:
        yield Bench(link, engine, worker, service, server, channel, stub, address)
    finally:
        await channel.close()
        await server.stop(0)
        await engine.stop()


def prefill_request(num_tokens: int = 8, **fields) -> handoff_pb2.PrefillRequest:
    values = {
        "request_id": "req-1",
        "incarnation": KEY.incarnation,
        "token_ids": list(range(num_tokens)),
        "sampling": sampling_to_wire(SamplingParams(max_tokens=4)),
        "cache_root": bytes(16),
    }
    return handoff_pb2.PrefillRequest(**values | fields)
