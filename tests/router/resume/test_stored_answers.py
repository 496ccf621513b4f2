"""Answers in the store: what one router writes another one takes, and only one of them goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from cluster.generation import GeneratedToken
from router.dispatch.first_part import FirstPart
from router.dispatch.stream import ChoiceTokens
from router.resume.kept_answer import KeptAnswer
from router.resume.shared_answers import AnswersAway
from router.resume.stored_answers import PART_ANSWERS, PART_BATCHES, StoredAnswers
from router.store.link import StoreCommand, StoreRefusal, StoreReply
from router.store.shared_store import SharedStore
from tests.redis_server import RedisServer
from tests.router.resume_bench import Client, KeepingRouter
from tests.router.store.fake_link import FakeLink, Reply, knows_all
from tests.router.store.stores import NAMES, PATIENT, STRICT, new_store, running, until
from tests.router.streams_bench import bench, undisturbed

KEY = b"k" * 32


class AnyPlace:
    """Keeps whatever comes."""

    def keep(self, answer: KeptAnswer) -> bool:
        return True

    def left(self, answer: KeptAnswer, error: object) -> None:
        pass


def answer_of(num_batches: int) -> KeptAnswer:
    answer = KeptAnswer(KEY, "", b"the request", AnyPlace())
    answer.begun(FirstPart("pairing", 3), 1000)
    for number in range(num_batches):
        tell(answer, number)
    return answer


def tell(answer: KeptAnswer, token_id: int) -> None:
    answer.relayed(ChoiceTokens(0, [GeneratedToken(token_id)]))
    answer.write()


class NotingLink(FakeLink):
    """Of every round trip what was asked."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply)
        self.sent: list[Sequence[StoreCommand]] = []

    async def exchange(self, commands: Sequence[StoreCommand]) -> list[StoreReply | StoreRefusal]:
        self.sent.append(commands)
        return await super().exchange(commands)


def new_answers(store: SharedStore) -> StoredAnswers:
    return StoredAnswers(store, 60.0)


async def test_what_one_has_written_in_parts_another_one_takes(redis_server: RedisServer) -> None:
    stores = [new_store(redis_server.url) for _ in range(2)]
    first, second = map(new_answers, stores)
    async with running(*stores):
        answer = answer_of(2 * PART_BATCHES + 1)
        for number in range(3):
            assert await first.write([answer]) == [True]
            tell(answer, number)
        taken = await second.take(KEY)
        assert taken is not None
        assert (taken.epoch, taken.head) == (1, b"the request")
        assert taken.batches == answer.batches[: answer.num_shared]
        assert await second.take(b"unknown") is None


async def test_who_has_lost_an_answer_is_told_and_writes_no_more(redis_server: RedisServer) -> None:
    store = new_store(redis_server.url)
    answers = new_answers(store)
    async with running(store):
        before, after = answer_of(1), answer_of(1)
        assert await answers.write([before]) == [True]
        taken = await answers.take(KEY)
        assert taken is not None
        after.epoch, after.num_shared = taken.epoch, len(taken.batches)
        tell(after, 7)
        tell(before, 8)
        assert await answers.write([before, after]) == [False, True]
        again = await answers.take(KEY)
        assert again is not None and again.batches == after.batches


async def test_a_store_that_was_emptied_is_told_everything_again(redis_server: RedisServer) -> None:
    store = new_store(redis_server.url)
    answers = new_answers(store)
    async with running(store):
        answer = answer_of(3)
        await answers.write([answer])
        redis_server.do("FLUSHDB")
        tell(answer, 9)
        for _ in range(2):
            assert await answers.write([answer]) == [True]
        taken = await answers.take(KEY)
        assert taken is not None and taken.batches == answer.batches


async def test_what_is_written_lives_no_longer_than_it_may(redis_server: RedisServer) -> None:
    store = new_store(redis_server.url)
    answers = new_answers(store)
    async with running(store):
        await answers.write([answer_of(2)])
        names = answers._names(KEY)
        for name in names:
            left_ms = int(redis_server.do("PTTL", name).strip(b":\r\n"))
            assert 0 < left_ms <= 62_000


async def test_a_store_that_is_away_is_said_to_be_away(redis_server: RedisServer) -> None:
    store = new_store(redis_server.url, STRICT)
    answers = new_answers(store)
    async with running(store):
        redis_server.kill()
        await until(lambda: not store.is_there)
        with pytest.raises(AnswersAway):
            await answers.write([answer_of(1)])
        with pytest.raises(AnswersAway):
            await answers.take(KEY)


@pytest.mark.parametrize("kind", ["two choices", "a stop string of two choices"])
async def test_a_router_goes_on_with_the_answers_of_one_that_died(
    kind: str, redis_server: RedisServer
) -> None:
    stores = [new_store(redis_server.url) for _ in range(2)]
    shared = [new_answers(store) for store in stores]
    async with bench() as here, running(*stores):
        dead, alive = (KeepingRouter(here.plane.source, each) for each in shared)
        asked, expected = await undisturbed(here, kind)
        for written in range(1, 40, 6):
            client, begun = Client(), await dead.begin(f"r{written}", asked)
            await client.read(dead, begun, written + 2, written_at=written)
            await client.read(alive, await alive.resume(client.ids[-1], f"again{written}"))
            assert client.answer == expected


async def test_of_many_answers_few_go_at_once_and_others_calls_go_between() -> None:
    link = NotingLink(lambda command: 1 if command[0] == "EVALSHA" else knows_all(command))
    store = SharedStore(link, NAMES, patience=PATIENT)
    answers = [answer_of(2) for _ in range(8 * PART_ANSWERS)]
    async with running(store):
        writing = asyncio.create_task(new_answers(store).write(answers))
        num_asked = 0
        while not writing.done():
            await store.ask(("PING",))
            num_asked += 1
        assert await writing == [True] * len(answers)
    assert num_asked >= 4
    scripts = [sum(command[0] == "EVALSHA" for command in commands) for commands in link.sent]
    assert max(scripts) == PART_ANSWERS
    assert sum(scripts) == len(answers)
