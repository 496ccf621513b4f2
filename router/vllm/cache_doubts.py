"""Whether a decode server's cache can be believed, while blocks are read into it and after.

    opened --first token--> judged: believed, or doubted
        '--left, within a third of the lease--> believed
        '--left later, within the lease ------> the prefill server's counter is asked
        '--left after it ---------------------> doubted

What was read late is cached under the salt that its reader came with, and every request of that
salt may have found it, its own blocks read or none. So no first token is believed before all reads
that could have been late by then have been asked about, and none whose salt has been doubted.
Nobody waits for another request: a read within its lease has a counter that can be asked at once,
and one whose lease has passed will not be believed, whatever it brings. An answer that has begun
goes on as it was believed, unless its server may have begun it anew (begun_answers.py).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from cluster.process.background import Background
from cluster.world import World
from router.vllm.begun_answers import BegunAnswer, BegunAnswers
from router.vllm.kept_blocks import Belief, KeptBlocks, LateRead
from router.vllm.open_read import Beginning, OpenRead
from router.vllm.server import VllmServer
from router.vllm.server_numbers import ServerNumbers


class OthersLateRead(LateRead):
    """The request may have found blocks in the cache that another one read after their lease."""


class CacheDoubts:
    """Of one decode server, for all requests of its link. From the event loop only."""

    def __init__(
        self,
        server: VllmServer,
        background: Background,
        world: World,
        on_doubt: Callable[[], None],
    ) -> None:
        """`background` runs what asks a counter. `on_doubt`: see LinkEvents."""
        self._server = server
        self._background = background
        self._clock = world.clock
        self._on_doubt = on_doubt
        self._open = set[OpenRead]()
        self._doubtful_s = math.inf
        """No open read could be late before."""
        self._answers = BegunAnswers(server, world)
        self._is_closed = False

    @property
    def num_open(self) -> int:
        """Reads that are not judged yet."""
        return len(self._open)

    @property
    def num_late(self) -> int:
        """Doubted reads that an answer under way could find."""
        return len(self._answers.late)

    def close(self) -> None:
        """No counter is asked any more: what would need one is doubted."""
        self._is_closed = True

    def end(self) -> None:
        """After all that ran has ended: what nobody has judged is doubted."""
        for read in list(self._open):
            self._doubt(read.salt_end)

    def opened(
        self, kept: KeptBlocks, prefill: VllmServer, prefill_ms: float, beginning: Beginning
    ) -> OpenRead | None:
        """To be asked for now, with the server's salt by now, as `beginning` has it; None: it is
        too late for that. Then `failed` or `left` whatever comes, unless `judge` was asked."""
        if (parameters := kept.take()) is None:
            return None
        read = OpenRead(
            kept=kept,
            parameters=parameters,
            prefill=prefill,
            prefill_ms=prefill_ms,
            beginning=beginning,
            decode_numbers=self._server.numbers,
            opened_s=self._clock(),
        )
        self._open.add(read)
        self._doubtful_s = min(self._doubtful_s, kept.doubtful_s)
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

    def begun(self, beginning: Beginning, numbers: ServerNumbers) -> BegunAnswer:
        """Its first token was believed. `over` at its end. `numbers`: of its server, before it was
        asked for."""
        return self._answers.begun(beginning, numbers)

    def over(self, answer: BegunAnswer) -> None:
        """No more of it comes; idempotent."""
        self._answers.over(answer)

    async def goes_on(self, answer: BegunAnswer) -> None:
        """More of it has come. Raises OthersLateRead where that may be made of blocks that another
        request read late; waits for nothing where there is no read that it could find so."""
        reads = self._reads_found_by(answer, now_s := self._clock())
        if not reads:
            answer.heard_s = now_s
        elif await self._answers.may_be_anew(answer, reads):
            await self._ask_about_others(answer.beginning.salt_end)
            if not self._answers.late_among(reads):
                return
            raise OthersLateRead(
                "the answer may have been begun anew in the middle, of another request's blocks "
                "that were read after their lease"
            )

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

    def _reads_found_by(self, answer: BegunAnswer, now_s: float) -> list[OpenRead]:
        """That are late, or could be by now. With every piece of every answer: most often nothing
        is looked through."""
        if now_s < self._doubtful_s and not self._answers.late:
            return []
        self._doubtful_s = min((each.kept.doubtful_s for each in self._open), default=math.inf)
        found = answer.beginning
        reads = (*self._answers.late, *self._suspects)
        return [each for each in reads if each.beginning.is_found_by(found)]

    def _doubt(self, salt_end: str) -> None:
        """Of what was cached under that salt nothing is used from now on; its reads matter to
        nobody any more, but to answers that have begun."""
        self._answers.note_late([each for each in self._open if each.salt_end == salt_end])
        self._open = {each for each in self._open if each.salt_end != salt_end}
        if salt_end == self._server.salt_end:
            self._server.doubt_cache()
            self._on_doubt()
