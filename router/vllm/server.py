"""One vLLM server as the router knows it: the way to it, its name, and its last numbers."""

from __future__ import annotations

from hashlib import blake2b

from cluster.generation import EngineLoad
from cluster.identity import WorkerKey
from cluster.logs import get_logger
from cluster.membership.member import Member
from router.engine_events.source import EngineEventSource
from router.vllm.server_address import VllmAddress
from router.vllm.server_numbers import ServerNumbers, numbers_in
from router.vllm.wire import VllmWire, check

NUMBERS_TIMEOUT_S = 2.0
"""For its page of metrics: 50 KB, which a busy server makes between two steps."""

_log = get_logger("vllm")


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
        self._num_doubts = 0

    @property
    def name(self) -> str:
        """For messages."""
        return self.address.worker_id

    @property
    def model(self) -> str:
        """As it calls what it serves."""
        return self.member.model if self.member is not None else ""

    def salt_of(self, cache_root: bytes) -> str:
        """What keeps the blocks below that root apart from others in its cache: the root in
        hexadecimal digits, until what it has cached cannot be believed any more."""
        if not self._num_doubts:
            return cache_root.hex()
        key = b"%d" % self._num_doubts
        return blake2b(cache_root, key=key, digest_size=len(cache_root)).hexdigest()

    def doubt_cache(self) -> None:
        """It may have cached blocks that it read too late, under the names of the right ones, and
        cannot be told to drop them: from now on no request finds anything that it has by now."""
        self._num_doubts += 1
        _log.error(
            "a vLLM decode server may have read blocks after their lease, and have cached them; "
            "nothing that it has cached is used any more, and its KV events are of no use until "
            "it is restarted",
            worker_id=self.name,
        )

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
