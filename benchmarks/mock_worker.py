"""A decode worker without an engine: a request for one token is answered at once, one for more gets
a token every STEP_S.

Run as `python -m benchmarks.mock_worker ROUTER_GRPC [STEP_S]`. Prints `ready`, then a line
`REQUEST_ID MONOTONIC_NS` when a request arrives: the clock is shared by all processes of a machine.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from cluster import VERSION
from cluster.generation import EngineLoad
from cluster.identity import Role, new_incarnation
from cluster.membership.client import MembershipClient, Pulse
from cluster.membership.member import Member
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from cluster.pairing import PROTOCOL_VERSION, Pairing
from cluster.process.background import cancel
from cluster.rpc import RpcServer
from cluster.world import World
from protos import generation_pb2, worker_pb2, worker_pb2_grpc

STEP_S = 0.01
LOAD = EngineLoad(total_blocks=65536, free_blocks=65536, prefill_tokens_per_s=1e5, decode_step_ms=5)


class MockDecode(worker_pb2_grpc.DecodeWorkerServicer):
    """One frame a step for all that runs; it is whoever the router takes it for."""

    async def Session(self, requests: Any, context: Any) -> AsyncIterator[worker_pb2.WorkerFrame]:
        yield worker_pb2.WorkerFrame(opened=(await anext(requests)).open)
        frames: asyncio.Queue[worker_pb2.WorkerFrame] = asyncio.Queue()
        running: dict[str, _Running] = {}
        tasks = [
            asyncio.create_task(_read(requests, running, frames)),
            asyncio.create_task(_step(running, frames)),
        ]
        try:
            while True:
                yield await frames.get()
        finally:
            await cancel(tasks)


@dataclass(slots=True)
class _Running:
    submit: worker_pb2.Submit
    num_tokens: int = 0

    def next_frame(self) -> worker_pb2.WorkerFrame:
        """One token more; with the last one the end."""
        self.num_tokens += 1
        submit, is_last = self.submit, self.num_tokens == self.submit.sampling.max_tokens
        tokens = worker_pb2.Tokens(
            request_id=submit.request_id,
            tokens=[generation_pb2.GeneratedToken(token_id=28)],
            finish_reason=generation_pb2.FINISH_REASON_LENGTH if is_last else 0,
        )
        if not is_last:
            return worker_pb2.WorkerFrame(tokens=[tokens])
        usage = generation_pb2.Usage(
            prompt_tokens=len(submit.token_ids), completion_tokens=self.num_tokens
        )
        ended = worker_pb2.Ended(
            request_id=submit.request_id, usage=usage, timing=generation_pb2.Timing()
        )
        return worker_pb2.WorkerFrame(tokens=[tokens], ended=[ended])


async def _read(
    requests: Any, running: dict[str, _Running], frames: asyncio.Queue[worker_pb2.WorkerFrame]
) -> None:
    async for message in requests:
        if message.HasField("submit"):
            submit = message.submit
            print(submit.request_id, time.monotonic_ns(), flush=True)
            running[submit.request_id] = item = _Running(submit)
            if submit.sampling.max_tokens == 1:
                del running[submit.request_id]
                frames.put_nowait(item.next_frame())
        elif message.HasField("cancel"):
            running.pop(message.cancel.request_id, None)


async def _step(
    running: dict[str, _Running], frames: asyncio.Queue[worker_pb2.WorkerFrame]
) -> None:
    while True:
        await asyncio.sleep(STEP_S)
        frame = worker_pb2.WorkerFrame()
        for item in list(running.values()):
            frame.MergeFrom(item.next_frame())
            if frame.ended and frame.ended[-1].request_id == item.submit.request_id:
                del running[item.submit.request_id]
        if frame.tokens:
            frames.put_nowait(frame)


def _pairing(card: ModelCard) -> Pairing:
    return Pairing(
        protocol_version=PROTOCOL_VERSION,
        weights_digest=card.weights_digest,
        tokenizer_digest=card.tokenizer_digest,
        dtype="bfloat16",
        block_size_tokens=16,
        num_layers=card.config.num_layers,
        num_kv_heads=card.config.num_kv_heads,
        head_dim=card.config.head_dim,
    )


async def serve(
    router: str,
    servicer: worker_pb2_grpc.DecodeWorkerServicer,
    *,
    worker_id: str = "mock-0",
    load: EngineLoad = LOAD,
    max_num_seqs: int = 0,
) -> None:
    """Joins the router, or each of several (`a,b`), as a decode worker; returns when one gives
    up."""
    card = ModelStore().resolve("smollm2")
    server = RpcServer("127.0.0.1", 0)
    name = "splitserve.worker.v1.DecodeWorker"
    server.add(worker_pb2_grpc.add_DecodeWorkerServicer_to_server, servicer, name)
    port = await server.start()
    await server.set_ready(True)
    member = Member(
        worker_id=worker_id,
        incarnation=new_incarnation(),
        role=Role.DECODE,
        address=f"127.0.0.1:{port}",
        model=card.name,
        max_context_tokens=card.config.max_context_tokens,
        pairing=_pairing(card),
        version=VERSION,
        pid=os.getpid(),
        prefix_cache_off=True,
        max_num_seqs=max_num_seqs,
    )
    pulse = Pulse(load=load, draining=False, kv_transport="")
    print("ready", flush=True)
    clients = [MembershipClient(one, member, lambda: pulse, World()) for one in router.split(",")]
    beats = [asyncio.create_task(client.run()) for client in clients]
    await asyncio.wait(beats, return_when=asyncio.FIRST_COMPLETED)
    await cancel(beats)


if __name__ == "__main__":
    STEP_S = float(sys.argv[2]) if len(sys.argv) > 2 else STEP_S
    asyncio.run(serve(sys.argv[1], MockDecode()))
