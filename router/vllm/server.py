"""One vLLM server as the router knows it: the way to it, its name, and its last numbers."""

from __future__ import annotations

from cluster.generation import EngineLoad
from cluster.identity import WorkerKey
from cluster.membership.member import Member
from router.engine_events.source import EngineEventSource
from router.vllm.server_address import VllmAddress
from router.vllm.server_numbers import ServerNumbers, numbers_in
from router.vllm.wire import VllmWire, check

NUMBERS_TIMEOUT_S = 2.0
"""For its page of metrics: 50 KB, which a busy server makes between two steps."""


class VllmServer:
    """One per address, whatever processes answer there. From the event loop only."""

    def __init__(self, address: VllmAddress, wire: VllmWire) -> None:
        self.address = address
        self.wire = wire
        self.member: Member | None = None
        """The process that has joined; None: none has."""
        self.events: EngineEventSource | None = None
        """Its KV events; None: it has none that the index could follow."""
        self.numbers = ServerNumbers()
        """As of the last look."""
        self.num_asked = 0
        """Requests of this router that it has now."""

    @property
    def name(self) -> str:
        """For messages."""
        return self.address.worker_id

    @property
    def model(self) -> str:
        """As it calls what it serves."""
        return self.member.model if self.member is not None else ""

    def is_process(self, key: WorkerKey) -> bool:
        """True when that process answers here."""
        return self.member is not None and self.member.key == key

    async def look(self) -> ServerNumbers:
        """Its numbers by now, not kept. Raises WorkerLost or NotReady."""
        page = await self.wire.get("/metrics", timeout_s=NUMBERS_TIMEOUT_S)
        return numbers_in(check(page, self.name).body)

    def note(self, numbers: ServerNumbers) -> EngineLoad:
        """Keeps them; the load that they stand for."""
        before, self.numbers = self.numbers, numbers
        return numbers.load(before)
