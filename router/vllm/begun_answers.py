"""Answers of one decode server that go on while a read of their prompt's beginning may be late.

    begun --pieces--> over
       '-- a read under its salt may be late: each piece waits for a look at the server's counter
             unmoved since the answer was asked for: it is made of the blocks that it had
             moved: it may have been begun anew, of whatever the server's cache has by then

vLLM takes a running request's blocks away when it has none left (it preempts it), and makes them
anew later: from what its cache has of prompt and answer so far. That may be what another request of
the same salt and beginning has read late since. No answer says that it was preempted. The counter
says of the server that somebody was: with that request's next output, or with one that was on its
way when it lost its blocks. Where it has moved before the read was asked for and not since, whoever
has said nothing since then may have lost its blocks before, and been counted before.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.world import World
from router.vllm.fresh_looks import FreshLooks
from router.vllm.open_read import Beginning, OpenRead
from router.vllm.server import VllmServer
from router.vllm.server_numbers import ServerNumbers

LOOK_GAP_S = 0.25
"""From look to look: a page takes its server some 10 ms, and pieces that wait are told together."""
LOOKS = 3
"""That may fail, one after the other: what nobody can tell is not believed."""


@dataclass(slots=True, eq=False)
class BegunAnswer:
    """Of one request, from its first token to its end."""

    beginning: Beginning
    numbers: ServerNumbers
    """Of its server, by the last look before it was asked for."""
    heard_s: float
    """When its last piece came that waited for nobody; at first: when it was believed."""

    def may_have_been_preempted(self, read: OpenRead, now: ServerNumbers | None) -> bool:
        """Since the server was asked for that read. `now`: its numbers, after the piece came."""
        if now is None:
            return True
        if now.show_no_preemption_since(self.numbers):
            return False
        is_same = now.show_no_preemption_since(read.decode_numbers)
        return not is_same or self.heard_s <= read.opened_s


class BegunAnswers:
    """Of one decode server. From the event loop only."""

    def __init__(self, server: VllmServer, world: World) -> None:
        self._world = world
        self._looks = FreshLooks(
            server.look, gap_s=LOOK_GAP_S, clock=world.clock, sleep=world.sleep
        )
        self._answers = set[BegunAnswer]()
        self._late: list[OpenRead] = []
        """Doubted reads that an answer could find."""

    @property
    def late(self) -> list[OpenRead]:
        """Reads that were doubted, or were open when another one of their salt was."""
        return self._late

    def begun(self, beginning: Beginning, numbers: ServerNumbers) -> BegunAnswer:
        """Its first token is believed; `over` at its end."""
        answer = BegunAnswer(beginning, numbers, self._world.clock())
        self._answers.add(answer)
        return answer

    def over(self, answer: BegunAnswer) -> None:
        """Idempotent. A read that no answer could find is forgotten."""
        self._answers.discard(answer)
        if self._late:
            self._late = [read for read in self._late if self._is_found(read)]

    def note_late(self, reads: list[OpenRead]) -> None:
        """Nobody is asked about them any more."""
        self._late += [read for read in reads if self._is_found(read)]

    def late_among(self, reads: list[OpenRead]) -> bool:
        """One of them is late by now."""
        return any(read in self._late for read in reads)

    async def may_be_anew(self, answer: BegunAnswer, reads: list[OpenRead]) -> bool:
        """Whether its server may have preempted it since it was asked for one of these."""
        now = None
        for _ in range(LOOKS):
            if (now := await self._looks.by_now()) is not None:
                break
        return any(answer.may_have_been_preempted(read, now) for read in reads)

    def _is_found(self, read: OpenRead) -> bool:
        return any(read.beginning.is_found_by(answer.beginning) for answer in self._answers)
