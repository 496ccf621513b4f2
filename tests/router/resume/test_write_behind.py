"""What other routers can have of a router's answers: what it keeps, and soon no more than that."""

from __future__ import annotations

import asyncio

from cluster.generation import GeneratedToken
from router.dispatch.stream import ChoiceTokens, FirstPart
from router.resume.kept_answer import KeptAnswer
from router.resume.kept_answers import KeepingLimits, KeptAnswers
from router.resume.shared_answers import SharedAnswers
from router.resume.stored_answers import StoredAnswers
from router.resume.write_behind import SIGN_OF_LIFE_S, WriteBehind
from tests.redis_server import RedisServer
from tests.router.resume_bench import SharedMemory
from tests.router.store.stores import new_store, running

LIMITS = KeepingLimits(within_s=60.0, max_bytes=1_000_000, max_answers=8)


class Router:
    """That has four places for its one tenant's answers."""

    def __init__(self, shared: SharedAnswers) -> None:
        self.now_s = 0.0
        self.answers = KeptAnswers(LIMITS, lambda: self.now_s)
        self.behind = WriteBehind(self.answers, shared, lambda: self.now_s, asyncio.sleep)

    def begin(self, number: int) -> KeptAnswer:
        answer = KeptAnswer(bytes([number] * 32), "", bytes(1000), self.answers)
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
    assert not router.answers.take_forgotten()
    assert answer.key in shared.answers
