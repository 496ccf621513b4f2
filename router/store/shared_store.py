"""The Redis that all routers of a fleet share: what is asked of it, and whether it is there.

    away --(connected; it knows our scripts, and has written a word in time)--> there
    there --(it broke off, stood still, was late again and again, or will not write)--> away
    there --(it refuses a command: whoever asked goes by what is known, others go on)--> there

Calls that come while others are under way go out together, with the next write: one connection, one
round trip at a time. Nobody waits longer than the call allows, and while the store is away nobody
waits at all. `run` belongs to the process and looks for the store, each time later, until it is
there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

from cluster.deadline import Clock, Sleep
from cluster.logs import get_logger
from cluster.process.backoff import Backoff
from router.store.calls import StoreCalls
from router.store.errors import LinkLost, StoreAway, StoreLate, StoreRefuses
from router.store.fitness import QUESTIONS, what_it_lacks
from router.store.link import StoreCommand, StoreLink, StoreRefusal, StoreReply
from router.store.names import StoreNames
from router.store.patience import Patience, Stall
from router.store.refusals import Refusals
from router.store.script import StoreScript
from router.store.topics import StoreTopic

LATE_IN_A_ROW = 8
"""Round trips: after so many the store is away, though it answers."""
IDLE_S = 1.0
"""Without a call for so long, the store is asked whether it is there."""
OnLate = Callable[[list[StoreReply]], None]
_log = get_logger("router.store")


class SharedStore:
    """Of one router. From the event loop only."""

    def __init__(
        self,
        link: StoreLink,
        names: StoreNames,
        *,
        patience: Patience | None = None,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.names = names
        self.refusals = Refusals()
        self._link = link
        self._patience = patience or Patience()
        self._clock = clock
        self._sleep = sleep
        self._calls = StoreCalls()
        self._scripts: list[StoreScript] = []
        self._watchers: list[Callable[[bool], None]] = []
        self._is_there: bool | None = None
        """None: nobody has looked yet."""
        self._given_up: str | None = None
        """Why we have closed the connection ourselves."""
        self._num_late = 0
        self._lacks = ""
        """As it was told last."""

    @property
    def is_there(self) -> bool:
        """True while it answers, as far as is known."""
        return bool(self._is_there)

    def watch(self, on_change: Callable[[bool], None]) -> None:
        """`on_change` hears at once when the store comes (True) and goes."""
        self._watchers.append(on_change)

    def teach(self, script: StoreScript) -> None:
        """Before `run`: the store is told of it whenever it comes."""
        self._scripts.append(script)

    async def ask(
        self,
        *commands: StoreCommand,
        topic: StoreTopic = StoreTopic.OTHER,
        within_s: float | None = None,
        on_late: OnLate = lambda replies: None,
    ) -> list[StoreReply]:
        """A reply for each, in one round trip; others' commands may come between. `within_s`: of
        what may wait longer than Patience.call_s. `on_late` hears replies that come after whoever
        asked was told otherwise, or was cancelled. Raises StoreAway where there is none for all of
        them, which says whether what was asked may be done all the same."""
        if not self._is_there:
            raise StoreAway("the shared store is away")
        call = self._calls.put(commands)
        limit_s = self._patience.call_s
        try:
            async with asyncio.timeout(limit_s if within_s is None else max(limit_s, within_s)):
                replies = await asyncio.shield(call.answer)
        except asyncio.CancelledError:
            call.give_up(partial(_tell_late, on_late))
            raise
        except TimeoutError:
            call.give_up(partial(_tell_late, on_late))
            late = "the shared store has not answered in time"
            raise StoreLate(late, may_be_done=call.is_sent) from None
        self._note_refusal(topic, commands, replies)
        return replies

    async def run(self) -> None:
        """Never returns."""
        backoff = Backoff(self._patience.first_retry_s, self._patience.longest_retry_s)
        while True:
            came_s = self._clock()
            try:
                await self._reach()
                came_s = self._clock()
                await self._serve()
            except LinkLost as loss:
                self._change(False, self._given_up or str(loss))
            finally:
                self._leave()
            await self._sleep(backoff.next_delay_s(healthy_s=self._clock() - came_s))

    async def _reach(self) -> None:
        """Raises LinkLost."""
        try:
            async with asyncio.timeout(self._patience.connect_s):
                await self._greet()
        except TimeoutError:
            raise LinkLost("no answer to a new connection") from None
        self._change(True)

    async def _greet(self) -> None:
        """It can write, or there would be no use in it. Raises LinkLost."""
        written: StoreCommand = ("SET", self.names.of_all("probe"), 1, "PX", 1000)
        await self._link.connect()
        taught: list[StoreCommand] = [("SCRIPT", "LOAD", script.text) for script in self._scripts]
        _check(await self._link.exchange([*taught, written]))
        self._look_over(await self._link.exchange(QUESTIONS))
        began_s = self._clock()
        _check(await self._link.exchange([written]))
        if (took_s := self._clock() - began_s) > self._patience.call_s:
            raise LinkLost(f"it answers too late: {self._told_times(took_s)}")

    def _look_over(self, answers: Sequence[StoreReply | StoreRefusal]) -> None:
        """What a store of this kind does not know is told once, and does without."""
        self.refusals.start_anew()
        before, self._lacks = self._lacks, what_it_lacks(answers)
        if self._lacks and self._lacks != before:
            _log.warning("the shared store lacks what routers ask of it", cause=self._lacks)

    async def _serve(self) -> None:
        """Until the connection is lost: raises LinkLost."""
        while True:
            commands = await self._calls.take(IDLE_S)
            replies = await self._exchange(commands or [("PING",)])
            self._calls.answer(replies if commands else ())
            _check([each for each in replies if _is_of_all(each)])

    async def _exchange(self, commands: Sequence[StoreCommand]) -> list[StoreReply | StoreRefusal]:
        began_s = self._clock()
        stall = Stall(self._patience.stall_s, self._give_up)
        try:
            replies = await self._link.exchange(commands)
        finally:
            stall.over()
        took_s = self._clock() - began_s
        self._num_late = self._num_late + 1 if took_s > self._patience.call_s else 0
        if self._num_late >= LATE_IN_A_ROW:
            times = self._told_times(took_s)
            raise LinkLost(f"{LATE_IN_A_ROW} answers in a row were late, the last: {times}")
        return replies

    def _told_times(self, took_s: float) -> str:
        limit_s = self._patience.call_s
        return f"took {took_s * 1000:.3g} ms, limit {limit_s * 1000:g} ms (--store-timeout-s)"

    def _give_up(self) -> None:
        self._given_up = f"no answer, limit {self._patience.stall_s * 1000:g} ms"
        self._link.close()

    def _note_refusal(
        self,
        topic: StoreTopic,
        commands: Sequence[StoreCommand],
        replies: Sequence[StoreReply | StoreRefusal],
    ) -> None:
        """Raises StoreAway where there is one."""
        refused = [
            (command, reply)
            for command, reply in zip(commands, replies, strict=True)
            if isinstance(reply, StoreRefusal)
        ]
        if not refused:
            return
        command, refusal = refused[0]
        if not refusal.is_of_all:  # else the store is away, and that is told
            self.refusals.note(topic, command, refusal)
        is_some_done = len(refused) < len(replies)
        raise StoreRefuses(f"the store refuses: {refusal.message}", may_be_done=is_some_done)

    def _leave(self) -> None:
        """Nobody waits for a connection that is no more."""
        self._is_there = False
        self._given_up = None
        self._num_late = 0
        self._link.close()
        self._calls.fail()

    def _change(self, is_there: bool, cause: str = "") -> None:
        if is_there is self._is_there:
            return
        self._is_there = is_there
        if is_there:
            _log.info("the shared store is there")
        else:
            _log.warning("the shared store is away: this router goes by what it knows", cause=cause)
        for on_change in self._watchers:
            on_change(is_there)


def _tell_late(on_late: OnLate, replies: Sequence[StoreReply | StoreRefusal]) -> None:
    """What was refused is not done, whoever thought that it may be."""
    if not any(isinstance(reply, StoreRefusal) for reply in replies):
        on_late(list(replies))


def _check(replies: Sequence[StoreReply | StoreRefusal]) -> None:
    """Raises LinkLost with the first refusal among them."""
    for reply in replies:
        if isinstance(reply, StoreRefusal):
            raise LinkLost(f"the store refuses: {reply.message}")


def _is_of_all(reply: StoreReply | StoreRefusal) -> bool:
    return isinstance(reply, StoreRefusal) and reply.is_of_all
