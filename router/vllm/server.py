"""One vLLM server as the router knows it: the way to it, its name, and its last numbers."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

from cluster.generation import EngineLoad
from cluster.identity import WorkerKey
from cluster.logs import get_logger
from cluster.membership.member import Member
from router.engine_events.source import EngineEventSource
from router.vllm.fresh_looks import FreshLooks
from router.vllm.prompt_silence import PromptSilence
from router.vllm.server_address import VllmAddress, VllmRole
from router.vllm.server_numbers import ServerNumbers, numbers_in
from router.vllm.wire import VllmWire, check

NUMBERS_TIMEOUT_S = 2.0
"""For its page of metrics: 50 KB, which a busy server makes between two steps."""
SALT_BYTES = 8
"""Drawn at random: two of one server differ."""

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
        self.on_work: Callable[[], None] = lambda: None
        """Hears that it has computed something since the look before; set by its link."""
        self.num_asked = 0
        """Requests of this router that it has now."""
        self.silence = PromptSilence()
        """To prompts that it was asked to compute."""
        self.num_words = 0
        """Pieces of answers that it has sent: by them one that is too busy for a look is alive."""
        self.is_unlisted = False
        """Nothing new is asked of it, and it goes with the last request that it has."""
        self.lost = asyncio.Event()
        """Set when nobody answers there any more: who waits for an answer waits in vain. Another
        one takes its place when somebody answers again."""
        self.salt_end = self.drawn_end()
        """What its cache's salts end with, by which its KV events show what may be believed."""
        self.passed_end = self.drawn_end()
        """The same for what a gateway sends: that reads nothing from others, cannot be asked again,
        and may stand in line while something is read late. So it finds nothing that was read."""
        self.looks = FreshLooks(self.look)

    @property
    def name(self) -> str:
        """For messages."""
        return self.address.worker_id

    @property
    def model(self) -> str:
        """As it calls what it serves."""
        return self.member.model if self.member is not None else ""

    @property
    def salt_ends(self) -> tuple[str, ...]:
        """All by which requests find what it has cached."""
        return self.salt_end, self.passed_end

    @property
    def caches_apart(self) -> bool:
        """What a gateway sends and what this router asks find nothing of each other."""
        return self.salt_end != self.passed_end

    @property
    def is_over(self) -> bool:
        """Nobody would lose anything by its going."""
        return self.num_asked == 0 or self.lost.is_set() or self.member is None

    def note_lost(self) -> None:
        """Nobody answers there, or another process does."""
        self.lost.set()

    def note_answer(self) -> None:
        """Somebody answers there."""
        if self.lost.is_set():
            self.lost = asyncio.Event()

    def doubt_cache(self) -> None:
        """It may have cached blocks that it read too late, under the names of the right ones, and
        cannot be told to drop them: from now on no request finds anything that it has by now."""
        self.salt_end = self.drawn_end()
        _log.error(
            "a vLLM decode server may have read blocks after their lease, and have cached them; "
            "this router uses nothing any more that it has cached by now",
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
        if before.num_tokens is not None and (numbers.num_tokens or 0) > before.num_tokens:
            self.on_work()
        return numbers.load(before)

    def drawn_end(self) -> str:
        """One that nothing is cached under; empty at a server that reads from nobody."""
        reads = self.address.role is VllmRole.DECODE
        return f"-{secrets.token_hex(SALT_BYTES)}" if reads else ""


def salt_of(cache_root: bytes, salt_end: str) -> str:
    """What keeps the blocks below that root apart from others in a server's cache: the root in
    hexadecimal digits, and at a server that reads from others what this router has drawn: what it
    reads too late for one router is found by no other, and not by one that starts again."""
    return cache_root.hex() + salt_end
