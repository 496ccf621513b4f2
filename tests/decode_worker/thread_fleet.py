"""Both roles over real engines (without a model), the real transfer code and real gRPC.

The fake model reads its context back from the KV pool: a wrong, stale or missing block changes the
tokens, so equal tokens mean that the KV is right.
"""

from __future__ import annotations

import asyncio
import math
import random
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from cluster.generation import BegunChoice
from cluster.identity import Role, WorkerKey
from cluster.pairing import Pairing
from cluster.process.lifespan import Lifespan, ProcessState
from cluster.rpc import RpcServer, open_channel
from cluster.sampling import SamplingParams
from cluster.wire import begun_to_wire, sampling_to_wire
from cluster.worker_identity import WorkerIdentity
from cluster.world import World
from decode_worker.service import DecodeWorker
from engine.contract.commands import GenerateRequest
from engine.offline.queue import generate
from kernels.dispatch.block_digest import block_digest
from kvtransfer.block_reader import BlockReader
from kvtransfer.local_pool import LocalPool
from kvtransfer.loopback import LoopbackFaults, LoopbackTransport
from prefill_worker.service import PrefillWorker
from protos import worker_pb2
from tests.decode_worker.decode_bench import RouterEnd, decode_worker, router_end
from tests.decode_worker.engine_thread import BLOCK_SIZE, ThreadLink, fake_engine
from worker.engine.host import EngineHost
from worker.kv.kv_exporter import KvExporter
from worker.kv.kv_intake import KvIntake
from worker.kv.kv_port import KvPort
from worker.metrics import WorkerMetrics
from worker.role import RunningWorker

ROOT = bytes(range(16))
PAIRING = Pairing(
    weights_digest="aa",
    tokenizer_digest="bb",
    dtype="float32",
    block_size_tokens=BLOCK_SIZE,
    num_layers=2,
    num_kv_heads=2,
    head_dim=8,
)


@dataclass
class Faults(LoopbackFaults):
    """Flips a byte of the last block of every read while `corrupts`; nothing lands while it
    `stands`."""

    corrupts: bool = False
    stands: bool = False

    def num_landing(self, peer, num_under_way):
        return 0 if self.stands else num_under_way

    def after_blocks(self, source, target, local_block_ids):
        if self.corrupts:
            target.blocks[local_block_ids[-1], 0, 0, 0, 0, 0] += 1


@dataclass
class Worker:
    """One worker of either role."""

    link: ThreadLink
    engine: EngineHost
    server: RpcServer
    key: WorkerKey
    address: str
    metrics: WorkerMetrics
    lifespan: Lifespan

    def drain(self) -> None:
        """No new work, please."""
        self.lifespan.advance(ProcessState.DRAINING)

    @property
    def target(self) -> worker_pb2.PrefillTarget:
        return worker_pb2.PrefillTarget(
            worker_id=self.key.worker_id, incarnation=self.key.incarnation, address=self.address
        )

    async def is_empty(self) -> bool:
        """No request, no lease, no broken invariant."""
        violations = await self.engine.violations()
        assert violations == []
        load = self.engine.load
        return self.engine.num_requests == 0 and load.num_leases == 0 and load.active_blocks == 0


@asynccontextmanager
async def running(role: Role, name: str, service, make_extension, block_size: int = BLOCK_SIZE):
    key = WorkerKey(name, f"{name}-{random.randbytes(4).hex()}")
    link = ThreadLink(lambda parts: make_extension(parts, key), block_size)
    engine = EngineHost(link)
    ready = await engine.start()
    lifespan = Lifespan()
    lifespan.advance(ProcessState.READY)
    metrics = WorkerMetrics(role, name)
    server = RpcServer("127.0.0.1", 0)
    service.register(server)
    service.open(
        RunningWorker(
            key=key,
            engine=engine,
            ready=ready,
            pairing=replace(PAIRING, block_size_tokens=block_size),
            lifespan=lifespan,
            metrics=metrics,
        )
    )
    address = f"127.0.0.1:{await server.start()}"
    try:
        yield Worker(link, engine, server, key, address, metrics, lifespan)
    finally:
        await service.close()
        await server.stop(0)
        await engine.stop()


def port(parts, key, *, faults: Faults | None = None, reads_by_trade: bool = False):
    pool = LocalPool(parts.kv, parts.generations)
    transport = LoopbackTransport(pool, key.incarnation, faults=faults)
    return KvPort(
        KvExporter(parts, transport, block_digest),
        lambda: KvIntake(parts, BlockReader(transport, pool, block_digest), "loopback"),
        reads_by_trade=reads_by_trade,
    )


@dataclass
class Fleet:
    prefill: list[Worker]
    decode: Worker
    faults: Faults
    router: RouterEnd

    async def submit(
        self, request_id, prompt, sampling, targets, timeout_ms=20_000, resume=None
    ) -> None:
        """`resume`: choice -> its tokens so far, of an answer that goes on."""
        submit = worker_pb2.Submit(
            request_id=request_id,
            token_ids=prompt,
            sampling=sampling_to_wire(sampling),
            prefill=[worker.target for worker in targets],
            cache_root=ROOT,
            timeout_ms=timeout_ms,
            resume=[begun_to_wire(BegunChoice(*item)) for item in (resume or {}).items()],
        )
        await self.router.say(submit=submit)

    async def all_empty(self) -> None:
        """Every worker is back at rest, within five seconds."""
        async with asyncio.timeout(5):
            for worker in (*self.prefill, self.decode):
                while not await worker.is_empty():
                    await asyncio.sleep(0)  # each look is a round trip to the engine


@asynccontextmanager
async def running_fleet(
    service: DecodeWorker | None = None,
    *,
    prefill_sizes: tuple[int, int] = (BLOCK_SIZE, BLOCK_SIZE),
    decode_size: int = BLOCK_SIZE,
):
    """Two prefill workers and a decode worker, each with an engine in a thread and blocks of so
    many tokens."""
    faults = Faults()

    reading = partial(port, faults=faults, reads_by_trade=True)
    computing = partial(port, faults=faults)

    async with AsyncExitStack() as stack:
        prefill = [
            await stack.enter_async_context(
                running(Role.PREFILL, f"prefill-{i}", PrefillWorker(World()), computing, size)
            )
            for i, size in enumerate(prefill_sizes)
        ]
        decode = await stack.enter_async_context(
            running(Role.DECODE, "decode-0", service or decode_worker(), reading, decode_size)
        )
        channel = await stack.enter_async_context(open_channel(decode.address))
        pairing = replace(PAIRING, block_size_tokens=decode_size)
        router = router_end(channel, WorkerIdentity(decode.key, pairing))
        yield Fleet(prefill, decode, faults, router)


def expected(prompt: list[int], sampling: SamplingParams) -> dict[int, list[int]]:
    """What one engine alone makes of it."""
    engine, _ = fake_engine()
    request = GenerateRequest(
        request_id="alone",
        token_ids=prompt,
        sampling=sampling,
        cache_root=ROOT,
        timeout_ms=math.inf,
    )
    (completion,) = generate(engine, [request])
    return {choice: completion.token_ids(choice) for choice in range(sampling.n)}


def received(router: RouterEnd, request_id: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for frame in router.frames:
        for tokens in frame.tokens:
            if tokens.request_id == request_id:
                found.setdefault(tokens.choice, []).extend(t.token_id for t in tokens.tokens)
    return found


def prompt_of(num_tokens: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(500), k=num_tokens)


def counted(worker: Worker, name: str) -> dict[str, float]:
    """A counter's values by its only label."""
    return {
        next(iter(sample.labels.values())): sample.value
        for metric in worker.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == f"splitserve_worker_{name}_total"
    }


async def read_until_ended(router: RouterEnd, names: set[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    while set(counts) < names:
        for ended in (await router.next_frame()).ended:
            counts[ended.request_id] = counts.get(ended.request_id, 0) + 1
    return counts
