"""Whether a decode server's cache can be believed, while blocks are read into it and after.

    opened --first token--> judged: believed, or doubted
        '--left, within a third of the lease--> believed
        '--left later, within the lease ------> the prefill server's counter is asked
        '--left after it ---------------------> doubted

What was read late is cached under the salt that its reader came with, and every request of that
salt may have found it, its own blocks read or none. So no first token is believed before all reads
that could have been late by then have been asked about, and none whose salt has been doubted.
Nobody waits for another request: a read within its lease has a counter that can be asked at once,
and one whose lease has passed will not be believed, whatever it brings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cluster.process.background import Background
from router.vllm.kept_blocks import Belief, KeptBlocks, LateRead
from router.vllm.server import VllmServer
from router.vllm.server_numbers import ServerNumbers


class OthersLateRead(LateRead):
    """The request may have found blocks in the cache that another one read after their lease."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenRead:
    """One that a decode server was asked for."""

    kept: KeptBlocks
    parameters: dict[str, Any]
    """As they were taken."""
    prefill: VllmServer
    """Which keeps the blocks."""
    prefill_ms: float
    """That it took for them."""
    salt_end: str
    """Of the salt under which they are cached."""

    def was_late(self, numbers: ServerNumbers | None) -> bool:
        """As the prefill server's numbers show by now; so where it could not be asked, or another
        process counts there, from nothing."""
        if numbers is None or numbers.started != self.kept.started:
            return True
        return self.kept.was_late(numbers.late_reads)


class CacheDoubts:
    """Of one decode server, for all requests of its link. From the event loop only."""

    def __init__(
        self, server: VllmServer, background: Background, on_doubt: Callable[[], None]
    ) -> None:
        """`background` runs what asks a counter. `on_doubt`: see LinkEvents."""
        self._server = server
        self._background = background
        self._on_doubt = on_doubt
        self._open = set[OpenRead]()
        self._is_closed = False

    @property
    def num_open(self) -> int:
        """Reads that are not judged yet."""
        return len(self._open)

    def close(self) -> None:
        """No counter is asked any more: what would need one is doubted."""
        self._is_closed = True

    def end(self) -> None:
        """After all that ran has ended: what nobody has judged is doubted."""
        for read in list(self._open):
            self._doubt(read.salt_end)

    def opened(self, kept: KeptBlocks, prefill: VllmServer, prefill_ms: float) -> OpenRead | None:
        """To be asked for now, with the server's salt by now; None: it is too late for that. Then
        `failed` or `left` whatever comes, unless `judge` was asked."""
        if (parameters := kept.take()) is None:
            return None
        read = OpenRead(
            kept=kept,
            parameters=parameters,
            prefill=prefill,
            prefill_ms=prefill_ms,
            salt_end=self._server.salt_end,
        )
        self._open.add(read)
        return read

    async def judge(self, read: OpenRead) -> None:
        """Its first token has come. Raises LateRead, after which `failed` is told."""
        read.kept.freeze()
        belief = read.kept.belief
        if belief is Belief.TOO_LATE or (belief is Belief.DOUBTFUL and await self._asked(read)):
            raise LateRead("the prompt's blocks may have been read after their lease")
        self._open.discard(read)

    async def settle(self, salt_end: str) -> None:
        """The first token of an answer has come whose request had that salt. Raises
        OthersLateRead; waits for two looks at the prefill servers at most, and for none where no
        read is open that could have been late."""
        if self._open and salt_end == self._server.salt_end:
            await self._ask_about_others(salt_end)
        if salt_end != self._server.salt_end:
            raise OthersLateRead("another request's blocks may have been read after their lease")

    def failed(self, read: OpenRead) -> None:
        """Nothing of its answer was relayed, and it is asked again: what is next asked of the
        server must not find these blocks."""
        if read in self._open and read.kept.belief is not Belief.GOOD:
            self._doubt(read.salt_end)
        self._open.discard(read)

    def left(self, read: OpenRead) -> None:
        """Who asked for the blocks has gone: whether they were read, and when, nobody knows."""
        if read not in self._open:
            return
        read.kept.freeze()
        belief = read.kept.belief
        if belief is Belief.GOOD:
            self._open.discard(read)
        elif belief is Belief.TOO_LATE or self._is_closed:
            self._doubt(read.salt_end)
        else:
            self._background.once(f"asks {read.prefill.name} for late reads", self._weigh(read))

    async def _weigh(self, read: OpenRead) -> None:
        if await self._asked(read):
            self._doubt(read.salt_end)
        self._open.discard(read)

    async def _asked(self, read: OpenRead) -> bool:
        return read.was_late(await read.prefill.looks.by_now())

    async def _ask_about_others(self, salt_end: str) -> None:
        suspects = [each for each in self._suspects if each.salt_end == salt_end]
        if any(each.kept.belief is Belief.TOO_LATE for each in suspects):
            self._doubt(salt_end)
        elif suspects:
            prefills = list({each.prefill for each in suspects})
            numbers = await asyncio.gather(*(server.looks.by_now() for server in prefills))
            told = dict(zip(prefills, numbers, strict=True))
            if any(each in self._open and each.was_late(told[each.prefill]) for each in suspects):
                self._doubt(salt_end)

    @property
    def _suspects(self) -> list[OpenRead]:
        """By now they could have been read late."""
        return [each for each in self._open if each.kept.belief is not Belief.GOOD]

    def _doubt(self, salt_end: str) -> None:
        """Of what was cached under that salt nothing is used from now on; its reads matter to
        nobody any more."""
        self._open = {each for each in self._open if each.salt_end != salt_end}
        if salt_end == self._server.salt_end:
            self._server.doubt_cache()
            self._on_doubt()
