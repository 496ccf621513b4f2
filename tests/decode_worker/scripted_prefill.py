"""A prefill worker that announces what a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cluster.errors import SplitserveError
from cluster.generation import GeneratedToken
from cluster.pairing import Pairing
from cluster.rpc import RpcServer, abort
from cluster.wire import pairing_to_wire, peer_to_wire, token_to_wire
from protos import handoff_pb2, handoff_pb2_grpc, worker_pb2
from worker.engine.scripted_link import scripted_peer

DIGEST = b"d" * 16
PATIENCE_S = 5.0


class ScriptedStream:
    """One Prefill call: `say` sends events, `released` is set when the reader has left."""

    def __init__(self, request: handoff_pb2.PrefillRequest) -> None:
        self.request = request
        self.events: asyncio.Queue[handoff_pb2.PrefillEvent | SplitserveError] = asyncio.Queue()
        self.released = asyncio.Event()

    def say_accepted(self, cached_tokens: int = 0) -> None:
        accepted = handoff_pb2.Accepted(cached_tokens=cached_tokens)
        self.events.put_nowait(handoff_pb2.PrefillEvent(accepted=accepted))

    def say_blocks(self, first_index: int, count: int) -> None:
        ready = handoff_pb2.BlocksReady(
            first_index=first_index,
            block_ids=[100 + first_index + i for i in range(count)],
            generations=[1] * count,
            digests=DIGEST * count,
        )
        self.events.put_nowait(handoff_pb2.PrefillEvent(blocks_ready=ready))

    def say_first_token(self, token_id: int, *, is_last: bool = False) -> None:
        token = handoff_pb2.ChoiceToken(choice=0, token=token_to_wire(GeneratedToken(token_id)))
        first = handoff_pb2.FirstToken(
            tokens=[token], queue_ms=3.0, prefill_ms=40.0, is_last=is_last
        )
        self.events.put_nowait(handoff_pb2.PrefillEvent(first_token=first))

    def say(self, event: handoff_pb2.PrefillEvent) -> None:
        """Anything, also what no prefill worker of ours would say."""
        self.events.put_nowait(event)

    def fail(self, error: SplitserveError) -> None:
        """The call ends with this error."""
        self.events.put_nowait(error)

    def say_progress(self, waiting_prefill_tokens: int = 0, tokens_ahead: int = 0) -> None:
        """The engine goes on, perhaps with others' requests."""
        progress = handoff_pb2.Progress(
            waiting_prefill_tokens=waiting_prefill_tokens, tokens_ahead=tokens_ahead
        )
        self.events.put_nowait(handoff_pb2.PrefillEvent(progress=progress))

    def say_done(self) -> None:
        self.events.put_nowait(handoff_pb2.PrefillEvent(done=handoff_pb2.Done()))


class ScriptedPrefill(handoff_pb2_grpc.PrefillWorkerServicer):
    """`streams` holds every Prefill call in order; one that is told nothing hangs.

    With `shakes_hands` false a handshake hangs, too.
    """

    def __init__(self, worker_id: str, pairing: Pairing) -> None:
        self.worker_id = worker_id
        self.incarnation = f"{worker_id}-incarnation"
        self.address = ""
        self.num_handshakes = 0
        self.shakes_hands = True
        self.streams: list[ScriptedStream] = []
        self._pairing = pairing
        self._server = RpcServer("127.0.0.1", 0)
        self._arrived = asyncio.Condition()

    @property
    def target(self) -> worker_pb2.PrefillTarget:
        return worker_pb2.PrefillTarget(
            worker_id=self.worker_id, incarnation=self.incarnation, address=self.address
        )

    async def start(self) -> None:
        add = handoff_pb2_grpc.add_PrefillWorkerServicer_to_server
        self._server.add(add, self, "splitserve.worker.v1.PrefillWorker")
        self.address = f"127.0.0.1:{await self._server.start()}"

    async def die(self) -> None:
        await self._server.stop(0)

    async def stream(self, count: int = 1) -> ScriptedStream:
        """The `count`-th call; fails after five seconds without it."""
        async with asyncio.timeout(PATIENCE_S), self._arrived:
            await self._arrived.wait_for(lambda: len(self.streams) >= count)
        return self.streams[count - 1]

    async def Handshake(self, request, context):
        self.num_handshakes += 1
        if not self.shakes_hands:
            await asyncio.Event().wait()
        return handoff_pb2.HandshakeResponse(
            pairing=pairing_to_wire(self._pairing),
            worker_id=self.worker_id,
            incarnation=self.incarnation,
            peer=peer_to_wire(scripted_peer()),
        )

    async def Prefill(self, request, context):
        stream = ScriptedStream(request)
        async with self._arrived:
            self.streams.append(stream)
            self._arrived.notify_all()
        try:
            while True:
                event = await stream.events.get()
                if isinstance(event, SplitserveError):
                    await abort(context, event)
                await context.write(event)
        finally:
            stream.released.set()


@asynccontextmanager
async def running_prefill(worker_id: str, pairing: Pairing) -> AsyncIterator[ScriptedPrefill]:
    prefill = ScriptedPrefill(worker_id, pairing)
    await prefill.start()
    yield prefill
    await prefill.die()


async def released(stream: ScriptedStream) -> None:
    async with asyncio.timeout(5):
        await stream.released.wait()
