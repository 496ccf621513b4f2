"""A decode worker without an engine: answers every request at once with one token.

Run as `python -m benchmarks.mock_worker ROUTER_GRPC`. Prints `ready`, then a line
`REQUEST_ID MONOTONIC_NS` when a request arrives: the clock is shared by all processes of a machine.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from cluster.generation import EngineLoad
from cluster.identity import Role, new_incarnation
from cluster.membership.client import MembershipClient, Pulse
from cluster.membership.member import Member
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from cluster.pairing import Pairing
from cluster.rpc import RpcServer
from cluster.version import PROTOCOL_VERSION, VERSION
from protos import generation_pb2, worker_pb2, worker_pb2_grpc

LOAD = EngineLoad(total_blocks=65536, free_blocks=65536, prefill_tokens_per_s=1e5, decode_step_ms=5)


class MockDecode(worker_pb2_grpc.DecodeWorkerServicer):
    """Every Submit is answered in one frame."""

    async def Session(self, requests: Any, context: Any) -> AsyncIterator[worker_pb2.WorkerFrame]:
        async for message in requests:
            if message.HasField("submit"):
                arrived_ns = time.monotonic_ns()
                print(message.submit.request_id, arrived_ns, flush=True)
                yield _answer(message.submit)


def _answer(submit: worker_pb2.Submit) -> worker_pb2.WorkerFrame:
    token = generation_pb2.GeneratedToken(token_id=28)
    tokens = worker_pb2.Tokens(
        request_id=submit.request_id,
        tokens=[token],
        finish_reason=generation_pb2.FINISH_REASON_LENGTH,
    )
    usage = generation_pb2.Usage(prompt_tokens=len(submit.token_ids), completion_tokens=1)
    ended = worker_pb2.Ended(
        request_id=submit.request_id, usage=usage, timing=generation_pb2.Timing()
    )
    return worker_pb2.WorkerFrame(tokens=[tokens], ended=[ended])


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


async def _serve(router: str) -> None:
    card = ModelStore().resolve("smollm2")
    server = RpcServer("127.0.0.1", 0)
    name = "splitserve.worker.v1.DecodeWorker"
    server.add(worker_pb2_grpc.add_DecodeWorkerServicer_to_server, MockDecode(), name)
    port = await server.start()
    await server.set_ready(True)
    member = Member(
        worker_id="mock-0",
        incarnation=new_incarnation(),
        role=Role.DECODE,
        address=f"127.0.0.1:{port}",
        model=card.name,
        max_context_tokens=card.config.max_context_tokens,
        pairing=_pairing(card),
        version=VERSION,
        pid=os.getpid(),
    )
    pulse = Pulse(load=LOAD, draining=False, kv_transport="")
    print("ready", flush=True)
    await MembershipClient(router, member, lambda: pulse).run()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
