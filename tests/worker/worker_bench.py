"""A whole worker process in the test's process: a scripted engine, a router that takes notes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path

from cluster.common_options import ModelOptions, PeerOptions
from cluster.config import WorkerOptions
from cluster.engine_options import EngineOptions
from cluster.identity import Role
from cluster.models.card import CheckpointFormat, DecoderConfig, ModelCard
from cluster.rpc import RpcServer
from cluster.world import World
from prefill_worker.service import PrefillWorker
from protos import membership_pb2, membership_pb2_grpc
from tests.decode_worker.decode_bench import decode_worker
from worker.engine.scripted_link import ScriptedLink
from worker.worker_process import Surroundings, WorkerProcess

PATIENCE_S = 5.0


def tiny_card() -> ModelCard:
    """A model of which only the shape matters."""
    config = DecoderConfig(
        vocab_size=512,
        hidden_size=16,
        intermediate_size=16,
        num_layers=2,
        num_heads=2,
        num_kv_heads=2,
        head_dim=8,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        rope_scaling=None,
        max_context_tokens=512,
        tie_word_embeddings=True,
    )
    return ModelCard(
        name="tiny",
        source="tiny",
        format=CheckpointFormat.SAFETENSORS,
        weight_files=(),
        metadata_path=Path("/nowhere"),
        architecture="LlamaForCausalLM",
        config=config,
        checkpoint_dtype="float32",
        weights_digest="aa",
        tokenizer_digest="bb",
        eos_token_ids=(),
        bos_token_id=None,
        weight_bytes=0,
    )


class NotingRouter(membership_pb2_grpc.MembershipServicer):
    """Serves Membership and remembers what it was told."""

    def __init__(self) -> None:
        self.joins: list[membership_pb2.Member] = []
        self.joining: list[membership_pb2.JoinRequest] = []
        """With what else it was told by those in `joins`."""
        self.beats: list[membership_pb2.BeatRequest] = []
        self.leaves: list[membership_pb2.LeaveRequest] = []
        self.knows = True
        self.address = ""
        self._told = asyncio.Condition()
        self._server = RpcServer("127.0.0.1", 0)

    async def start(self, port: int = 0) -> None:
        self._server = RpcServer("127.0.0.1", port)
        add = membership_pb2_grpc.add_MembershipServicer_to_server
        self._server.add(add, self, "splitserve.worker.v1.Membership")
        self.address = f"127.0.0.1:{await self._server.start()}"

    async def stop(self) -> None:
        await self._server.stop(0)

    async def until(self, condition) -> None:
        """Waits until something that was told makes the condition true."""
        async with asyncio.timeout(PATIENCE_S), self._told:
            await self._told.wait_for(condition)

    async def Join(self, request, context):
        self.joins.append(request.member)
        self.joining.append(request)
        await self._notify()
        return membership_pb2.JoinResponse(beat_interval_s=0.02, lease_s=1.0)

    async def Beat(self, request, context):
        self.beats.append(request)
        await self._notify()
        return membership_pb2.BeatResponse(known=self.knows)

    async def Leave(self, request, context):
        self.leaves.append(request)
        await self._notify()
        return membership_pb2.LeaveResponse()

    async def _notify(self) -> None:
        async with self._told:
            self._told.notify_all()


@dataclass
class Running:
    """A worker that has been told to run."""

    process: WorkerProcess
    exit_code: asyncio.Task[int]
    links: list[ScriptedLink] = field(default_factory=list)

    @property
    def link(self) -> ScriptedLink:
        return self.links[0]

    async def ready(self) -> str:
        """Its address."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.address

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE_S):
            return await self.exit_code


PEER_OPTIONS = {item.name for item in fields(PeerOptions)}


def options_for(role: Role, router: str | None = None, **changes) -> WorkerOptions:
    """`changes` by name, of the worker's own options or of those among its peers."""
    peers = {name: changes.pop(name) for name in PEER_OPTIONS & changes.keys()}
    values = {
        "role": role,
        "router": router,
        "peers": PeerOptions(**{"kv_transport": "loopback"} | peers),
        "drain_timeout_s": 5.0,
        "model": ModelOptions(dtype="float32"),
        "engine": EngineOptions(block_size_tokens=4),
    }
    return WorkerOptions(**values | changes)


@asynccontextmanager
async def running_worker(
    options: WorkerOptions, *, start_error=None, world: World | None = None
) -> AsyncIterator[Running]:
    """Starts it; at the end it is stopped hard unless it has ended."""
    links: list[ScriptedLink] = []

    async def find_model(_options: WorkerOptions) -> ModelCard:
        return tiny_card()

    def make_link(_entry_module, _spec):
        links.append(ScriptedLink(start_error=start_error))
        return links[-1]

    world = world or World()
    role = PrefillWorker(world) if options.role is Role.PREFILL else decode_worker()
    surroundings = Surroundings(world=world, find_model=find_model, make_link=make_link)
    process = WorkerProcess(options, role, surroundings)
    running = Running(process, asyncio.create_task(process.run()), links)
    yield running
    process.stop_requests.on_sigint()
    await asyncio.wait((running.exit_code,))


@asynccontextmanager
async def noting_router() -> AsyncIterator[NotingRouter]:
    router = NotingRouter()
    await router.start()
    yield router
    await router.stop()
