"""What other routers can have of a router's answers: what it keeps, and soon no more than that."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from cluster.generation import GeneratedToken
from router.dispatch.first_part import FirstPart
from router.dispatch.stream import ChoiceTokens
from router.resume.kept_answer import KeptAnswer
from router.resume.kept_answers import KeepingLimits, KeptAnswers
from router.resume.shared_answers import SharedAnswers
from router.resume.stored_answers import StoredAnswers
from router.resume.write_behind import (
    INTERVAL_S,
    MOST_AT_ONCE,
    SIGN_OF_LIFE_S,
    WriteBehind,
    longest_unwritten_s,
)
from tests.redis_server import RedisServer
from tests.router.resume_bench import SharedMemory
from tests.router.store.stores import new_store, running

LIMITS = KeepingLimits(within_s=60.0, max_bytes=1_000_000, max_answers=8)


class Router:
    """That has four places for its one tenant's answers."""

    def __init__(self, shared: SharedAnswers, limits: KeepingLimits = LIMITS) -> None:
        self.now_s = 0.0
        self.answers = KeptAnswers(limits, lambda: self.now_s)
        self.behind = WriteBehind(self.answers, shared, lambda: self.now_s, asyncio.sleep)

    def begin(self, number: int) -> KeptAnswer:
        answer = KeptAnswer(number.to_bytes(32), "", bytes(1000), self.answers)
        answer.begun(FirstPart("pairing", 0), 10)
        return answer

    async def tell(self, numbers: range) -> list[KeptAnswer]:
        """One after the other, each to its end."""
        told = []
        for number in numbers:
            told.append(self.begin(number))
            await self.behind.look()
            told[-1].left(None)
        return told


class Counted(SharedMemory):
    """Notes how much it is asked at once."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[list[KeptAnswer]] = []
        self.removed: list[int] = []

    async def write(self, answers: Sequence[KeptAnswer]) -> list[bool]:
        self.written.append(list(answers))
        is_ours = await super().write(answers)
        for each in answers:
            each.num_shared = len(each.batches)
        return is_ours

    async def remove(self, forgotten: Mapping[bytes, int]) -> None:
        self.removed.append(len(forgotten))
        await super().remove(forgotten)


async def test_what_has_made_way_is_taken_away_from_the_store_too(
    redis_server: RedisServer,
) -> None:
    store = new_store(redis_server.url)
    shared = StoredAnswers(store, 60.0)
    router = Router(shared)
    async with running(store):
        told = await router.tell(range(20))
        await router.behind.look()
        there = [each for each in told if await shared.take(each.key) is not None]
        assert there == list(router.answers) == told[-4:]
        assert not any(
            redis_server.do("EXISTS", shared._names(each.key)[1])[1:2] == b"1" for each in told[:-4]
        )


async def test_what_another_router_has_taken_stays_in_the_store(redis_server: RedisServer) -> None:
    store = new_store(redis_server.url)
    shared = StoredAnswers(store, 60.0)
    router = Router(shared)
    async with running(store):
        [first] = await router.tell(range(1))
        assert await shared.take(first.key) is not None
        await router.tell(range(1, 20))
        await router.behind.look()
        assert not first.is_kept
        again = await shared.take(first.key)
        assert again is not None and again.batches == first.batches


async def test_what_has_made_way_while_the_store_was_away_is_taken_away_later() -> None:
    shared = SharedMemory()
    router = Router(shared)
    first, *_ = await router.tell(range(4))
    shared.is_away = True
    await router.tell(range(4, 20))
    assert first.key in shared.answers
    shared.is_away = False
    await router.behind.look()
    assert set(shared.answers) == {each.key for each in router.answers}


async def test_what_makes_way_while_it_is_written_is_taken_away_next() -> None:
    class Late(SharedMemory):
        async def write(self, answers: list[KeptAnswer]) -> list[bool]:  # type: ignore[override]
            for each in list(answers):
                router.answers.forget(each)
            return await super().write(answers)

    shared = Late()
    router = Router(shared)
    answer = router.begin(1)
    await router.behind.look()
    assert answer.key in shared.answers
    await router.behind.look()
    assert not shared.answers


async def test_who_hears_that_its_answer_was_taken_takes_nothing_away() -> None:
    shared = SharedMemory()
    router = Router(shared)
    answer = router.begin(1)
    await router.behind.look()
    await shared.take(answer.key)
    answer.relayed(ChoiceTokens(0, [GeneratedToken(1)]))
    router.now_s += SIGN_OF_LIFE_S
    await router.behind.look()
    assert not answer.is_kept
    assert not router.answers.take_forgotten(1)
    assert answer.key in shared.answers


async def test_of_thousands_that_run_a_turn_writes_few_and_each_has_its_turn() -> None:
    num_answers = 5 * MOST_AT_ONCE + 1
    limits = KeepingLimits(within_s=60.0, max_bytes=1 << 26, max_answers=2 * num_answers)
    shared = Counted()
    router = Router(shared, limits)
    running = [router.begin(number) for number in range(num_answers)]
    longest_s = 0.0
    for turn in range(60):
        router.now_s = turn * INTERVAL_S
        if turn < 40:  # afterwards they are silent, and only said to run
            for each in running:
                each.relayed(ChoiceTokens(0, [GeneratedToken(turn)]))
        await router.behind.look()
        assert len(shared.written[-1]) <= MOST_AT_ONCE
        if turn >= 6:
            oldest_s = min(each.written_s for each in running)
            longest_s = max(longest_s, router.now_s - oldest_s)
    assert 5 * INTERVAL_S <= longest_s <= longest_unwritten_s(num_answers)
    assert all(each.num_shared == len(each.batches) and not each.has_news for each in running)


async def test_of_thousands_that_make_way_a_turn_takes_few_away() -> None:
    num_answers = 2 * MOST_AT_ONCE + 1
    shared = Counted()
    router = Router(shared, KeepingLimits(within_s=9.0, max_bytes=1 << 26, max_answers=1000))
    for number in range(num_answers):
        router.begin(number).left(None)
    for _ in range(3):
        await router.behind.look()
    assert len(shared.answers) == num_answers
    router.now_s = 10.0
    for _ in range(3):
        await router.behind.look()
    assert shared.removed == [MOST_AT_ONCE, MOST_AT_ONCE, 1]
    assert not shared.answers
