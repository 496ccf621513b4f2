"""A Dialer whose prefill workers a test plays by hand, without a network."""

from __future__ import annotations

import asyncio

from cluster.deadline import Deadline
from cluster.dial.dialer import PrefillLink, PrefillStream
from cluster.errors import WorkerLost
from cluster.identity import WorkerKey
from cluster.pairing import Pairing
from cluster.wire import pairing_to_wire, peer_to_wire
from protos import handoff_pb2
from worker.engine.scripted_link import scripted_peer
from worker.exchange.prefill_target import PrefillTarget


class FakeStream(PrefillStream):
    """Gives what was put into `events`; then hangs until it is closed."""

    def __init__(self, request: handoff_pb2.PrefillRequest) -> None:
        self.request = request
        self.events: asyncio.Queue[handoff_pb2.PrefillEvent | None] = asyncio.Queue()
        self.is_closed = False

    async def next(self) -> handoff_pb2.PrefillEvent | None:
        return await self.events.get()

    def close(self) -> None:
        self.is_closed = True


class FakeLink(PrefillLink):
    """One process; `die` breaks its connection."""

    def __init__(self, key: WorkerKey, pairing: Pairing) -> None:
        self.key = key
        self.streams: list[FakeStream] = []
        self.is_dialled = self.is_closed = False
        self._pairing = pairing
        self._is_dead = asyncio.Event()

    async def shake_hands(
        self, request: handoff_pb2.HandshakeRequest, *, timeout_s: float
    ) -> handoff_pb2.HandshakeResponse:
        if self._is_dead.is_set():
            raise WorkerLost(f"nobody answers for {self.key.worker_id}")
        return handoff_pb2.HandshakeResponse(
            pairing=pairing_to_wire(self._pairing),
            worker_id=self.key.worker_id,
            incarnation=self.key.incarnation,
            peer=peer_to_wire(scripted_peer()),
        )

    def prefill(self, request: handoff_pb2.PrefillRequest, deadline: Deadline) -> FakeStream:
        self.streams.append(FakeStream(request))
        return self.streams[-1]

    async def lost(self) -> None:
        await self._is_dead.wait()

    async def close(self) -> None:
        self.is_closed = True

    def die(self) -> None:
        self._is_dead.set()


class FakeDialer:
    """The prefill part of a Dialer: `links` by address, made by `worker`."""

    def __init__(self, pairing: Pairing) -> None:
        self.links: dict[str, FakeLink] = {}
        self._pairing = pairing

    def worker(self, worker_id: str, incarnation: str) -> PrefillTarget:
        """A new process, at an address of its own."""
        target = PrefillTarget(WorkerKey(worker_id, incarnation), f"{incarnation}:1")
        self.links[target.address] = FakeLink(target.key, self._pairing)
        return target

    def prefill_worker(self, address: str) -> FakeLink:
        link = self.links[address]
        link.is_dialled = True
        return link
