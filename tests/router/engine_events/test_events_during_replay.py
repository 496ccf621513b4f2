"""An engine says more while its past is told: nothing is lost, and nothing counts twice."""

from __future__ import annotations

from collections import Counter

import pytest

from router.engine_events import follower as follower_module
from tests.router.engine_events.engine import removed
from tests.router.engine_events.rogue_engine import RogueEngine, until
from tests.router.engine_events.test_follower import Listener, block, following

NUM_PAST = 60


class BusyEngine(RogueEngine):
    """It publishes while it answers: before each of these numbers of an answer, so many more."""

    def __init__(self, busy_at: dict[int, int], *, kept: int = 5000) -> None:
        super().__init__(kept=kept)
        self.busy_at = busy_at
        self.copies: Counter[int] = Counter()

    async def before_reply(self, number: int) -> None:
        for _ in range(self.busy_at.pop(number, 0)):
            await self.one_more()

    async def one_more(self) -> None:
        """Each block comes twice, and goes once: one that is counted twice is not gone in the end,
        and one that is counted once is gone too early."""
        number = (self.past[-1][0] + 1) if self.past else 0
        await self.publish(block(number), block(number), removed([number]))
        self.copies[number] += 1

    async def drop_all(self) -> None:
        await self.publish(*[removed([number]) for number in self.copies])


async def past_of(engine: BusyEngine) -> None:
    for _ in range(NUM_PAST):
        await engine.one_more()


async def nothing_is_lost_or_doubled(engine: BusyEngine, listener: Listener) -> None:
    await until(lambda: listener.live == set(engine.copies))
    await engine.drop_all()
    await until(lambda: not listener.live)


async def test_what_is_said_during_a_replay_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_module, "MAX_UNREAD_MESSAGES", 8)  # the rest waits at the engine
    engine, listener = BusyEngine({0: 5, 10: 300, 59: 5}), Listener()
    async with engine.running():
        await past_of(engine)
        async with following(engine, listener):
            await nothing_is_lost_or_doubled(engine, listener)
    assert (listener.gaps, listener.resyncs, engine.asked) == (0, 1, [0])


async def test_a_gap_in_a_replay_is_filled_while_more_is_said() -> None:
    engine, listener = BusyEngine({10: 20, 35: 20, 50: 5}), Listener()
    async with engine.running():
        await past_of(engine)
        engine.lost_in_replay = [{30, 31}, {40}]
        async with following(engine, listener):
            await nothing_is_lost_or_doubled(engine, listener)
    assert engine.asked == [0, 30, 40] and listener.gaps == 0


async def test_a_gap_in_a_replay_that_is_not_kept_by_then_makes_all_forgotten() -> None:
    engine, listener = BusyEngine({40: 50}, kept=NUM_PAST), Listener()
    async with engine.running():
        await past_of(engine)
        engine.lost_in_replay = [{30}]
        async with following(engine, listener):
            await engine.one_more()
            await until(lambda: max(listener.live, default=0) == max(engine.copies))
            assert not listener.live & set(range(31))


@pytest.mark.parametrize("at", [0, 30, 59])
async def test_an_engine_that_starts_again_from_0_during_a_replay_is_followed_anew(at: int) -> None:
    engine, listener = RestartingEngine(at), Listener()
    async with engine.running():
        await past_of(engine)
        async with following(engine, listener):
            await engine.publish(block(1001))
            await until(lambda: listener.live == {1000, 1001})


class RestartingEngine(BusyEngine):
    """Before that number of its answer it is another process, behind the same connections."""

    def __init__(self, at: int) -> None:
        super().__init__({})
        self._at: int | None = at

    async def before_reply(self, number: int) -> None:
        if number == self._at:
            self._at = None
            self.start_again()
            await self.publish(block(1000))
