"""A Dialer over real gRPC whose prefill streams hang, lie, die and dawdle, as a seed decides."""

from __future__ import annotations

import asyncio
import enum
import random

from cluster.deadline import Deadline
from cluster.dial.dialer import PrefillLink, PrefillStream
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import InternalError, WorkerLost
from protos import handoff_pb2

MAX_EVENTS = 4
"""Events of a short prompt: the fault comes before, between or behind them."""


class Fault(enum.Enum):
    """What becomes of a stream after some events."""

    NONE = "none"
    HANGS = "hangs"
    DIES = "dies"
    FAILS = "fails"
    ENDS = "ends"
    LIES = "lies"
    DAWDLES = "dawdles"


class CruelStream(PrefillStream):
    """A real stream until its fault; closing it is always passed on."""

    def __init__(self, stream: PrefillStream, fault: Fault, num_events: int) -> None:
        self._stream = stream
        self._fault = fault
        self._left = num_events

    async def next(self) -> handoff_pb2.PrefillEvent | None:
        self._left -= 1
        if self._left >= 0:
            return await self._stream.next()
        match self._fault:
            case Fault.HANGS:
                await asyncio.Event().wait()
            case Fault.DIES:
                raise WorkerLost("the connection broke")
            case Fault.FAILS:
                raise InternalError("the engine failed")
            case Fault.ENDS:
                return None
            case Fault.DAWDLES:
                await asyncio.sleep(0.02)
        event = await self._stream.next()
        if self._fault is Fault.LIES and event is not None:
            _falsify(event)
        return event

    def close(self) -> None:
        self._stream.close()


def _falsify(event: handoff_pb2.PrefillEvent) -> None:
    """What a reader can find out: false generations, false tokens, no end."""
    match event.WhichOneof("event"):
        case "blocks_ready" if event.blocks_ready.generations:
            event.blocks_ready.generations[0] += 1
        case "scored":
            event.scored.first_index += 1
        case "first_token":
            event.first_token.tokens[0].token.token_id = 2**31
        case "accepted":
            event.accepted.cached_tokens = 2**31


class CruelLink(PrefillLink):
    """A real link; each stream draws its fault."""

    def __init__(self, link: PrefillLink, chance: random.Random, drawn: list[Fault]) -> None:
        self._link = link
        self._chance = chance
        self._drawn = drawn

    async def shake_hands(
        self, request: handoff_pb2.HandshakeRequest, *, timeout_s: float
    ) -> handoff_pb2.HandshakeResponse:
        return await self._link.shake_hands(request, timeout_s=timeout_s)

    def prefill(self, request: handoff_pb2.PrefillRequest, deadline: Deadline) -> CruelStream:
        fault = self._chance.choice(list(Fault))
        self._drawn.append(fault)
        stream = self._link.prefill(request, deadline)
        return CruelStream(stream, fault, self._chance.randrange(MAX_EVENTS))

    async def lost(self) -> None:
        await self._link.lost()

    async def close(self) -> None:
        await self._link.close()


class CruelDialer(GrpcDialer):
    """`drawn`: the fault of every stream so far."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.drawn: list[Fault] = []
        self._chance = random.Random(seed)

    def prefill_worker(self, address: str) -> CruelLink:
        return CruelLink(super().prefill_worker(address), self._chance, self.drawn)
