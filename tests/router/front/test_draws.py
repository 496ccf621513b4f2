"""Streams of a fleet whose workers are of two versions: with one seed each draws other tokens."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from cluster.errors import NoWorker, WorkerLost
from cluster.identity import Role
from cluster.membership.member import Member
from cluster.process.background import cancel
from protos import worker_pb2
from router.dispatch.stream import ChoiceTokens
from router.fleet import fleet as fleet_module
from router.front.generation_request import Wishes
from router.front.resumption import Resumable
from router.resume.record import AllTold, Begun, Told, read
from tests.router.dispatch_bench import router
from tests.router.fake_decode_worker import Frame, until
from tests.router.model_worker import ModelWorker, Trouble, loses_its_engine, says_nothing_more
from tests.router.resume_bench import Client, KeepingRouter, SharedMemory
from tests.router.streams_bench import Bench, wishes

NUM_READ = 9
GREEDY = msgspec.structs.replace(
    wishes(), sampling=msgspec.structs.replace(wishes().sampling, temperature=0.0)
)


class DrawingWorker(ModelWorker):
    """Of that version."""

    def __init__(self, worker_id: str, draws: int, troubles: dict[str, list[Trouble]]) -> None:
        super().__init__(worker_id, troubles)
        self.draws = draws

    def member(self, **values: object) -> Member:
        return super().member(**({"draws": self.draws} | values))

    def frames_of(self, submit: worker_pb2.Submit) -> Iterator[Frame]:
        drawn = worker_pb2.Submit()
        drawn.CopyFrom(submit)
        if submit.sampling.temperature:
            drawn.sampling.seed += self.draws
        return super().frames_of(drawn)


class Fleet(Bench):
    """That one worker of one version after the other has, alone."""

    async def has_only(self, draws: int) -> DrawingWorker:
        for item in self.plane.fleet.with_role(Role.DECODE):
            await self.plane.store.leave(item.key)
        [worker] = [each for each in self.workers if each.draws == draws]  # type: ignore[attr-defined]
        await self.plane.store.join(worker.member())
        await until(lambda: len(self.plane.fleet.ready(Role.DECODE)) == 1)
        return worker  # type: ignore[return-value]


@asynccontextmanager
async def fleet() -> AsyncIterator[Fleet]:
    troubles: dict[str, list[Trouble]] = {}
    workers = [DrawingWorker(f"decode-{draws}", draws, troubles) for draws in (0, 1)]
    async with router(*workers) as plane:
        yield Fleet(plane, [*workers], troubles)


async def broken_off(here: Fleet, asked: Wishes, num_written: int) -> tuple[Client, SharedMemory]:
    """The router has died of a client that had more tokens than it had written."""
    shared, client = SharedMemory(), Client()
    dead = KeepingRouter(here.plane.source, shared)
    here.troubles["r1"] = [Trouble(num_written, says_nothing_more)]
    await read_until_it_dies(here, client, dead, await dead.begin("r1", asked), num_written)
    return client, shared


async def read_until_it_dies(
    here: Fleet, client: Client, dying: KeepingRouter, part: Resumable, num_written: int
) -> None:
    """Its worker tells so many tokens and stands until they are written, and then as many more as
    make NUM_READ of its own; the trouble is the test's to order."""
    num_before = len(client.answer.texts.get(0, ""))
    reading = asyncio.create_task(client.read(dying, part))

    def has_read(num_own: int) -> bool:
        return len(client.answer.texts.get(0, "")) == num_before + num_own

    await until(lambda: has_read(num_written))
    await dying.behind.look()
    [worker] = [each for each in here.workers if here.plane.fleet.find(each.member().key)]
    for frame in [*worker.frames_of(worker.submitted[-1])][num_written:NUM_READ]:
        worker.send(frame)
    await until(lambda: has_read(NUM_READ))
    await cancel([reading])


async def go_on(here: Fleet, client: Client, shared: SharedMemory, name: str) -> None:
    alive = KeepingRouter(here.plane.source, shared)
    await client.read(alive, await alive.resume(client.ids[-1], name))


@pytest.mark.parametrize(("draws", "others"), [(0, 1), (1, 0)])
async def test_what_is_not_written_is_made_again_only_where_a_seed_draws_the_same(
    draws: int, others: int
) -> None:
    async with fleet() as here:
        await here.has_only(draws)
        expected = await here.ask("undisturbed", wishes())
        client, shared = await broken_off(here, wishes(), NUM_READ - 2)
        other = await here.has_only(others)
        with pytest.raises(NoWorker, match="send the request anew"):
            await go_on(here, client, shared, "elsewhere")
        assert other.submitted == []
        await here.has_only(draws)
        await go_on(here, client, shared, "again")
        assert client.answer == expected


async def test_what_is_written_goes_on_wherever_a_seed_draws_others() -> None:
    async with fleet() as here:
        await here.has_only(0)
        expected = await here.ask("undisturbed", wishes())
        client, shared = await broken_off(here, wishes(), NUM_READ)
        await here.has_only(1)
        await go_on(here, client, shared, "again")
        told, same = client.answer.texts[0], expected.texts[0]
        assert (len(told), told[:NUM_READ]) == (len(same), same[:NUM_READ]) and told != same
        assert [begun for _, begun in here.given("again")] == [[NUM_READ]]


async def test_after_it_went_on_elsewhere_it_is_made_again_as_it_was_drawn_there() -> None:
    async with fleet() as here:
        await here.has_only(0)
        client, shared = await broken_off(here, wishes(), NUM_READ)
        await here.has_only(1)
        dead = KeepingRouter(here.plane.source, shared)
        here.troubles["second"] = [Trouble(NUM_READ - 2, says_nothing_more)]
        part = await dead.resume(client.ids[-1], "second")
        await read_until_it_dies(here, client, dead, part, NUM_READ - 2)
        had = client.answer.texts[0]
        first = await here.has_only(0)
        num_before = len(first.submitted)
        with pytest.raises(NoWorker, match="send the request anew"):
            await go_on(here, client, shared, "elsewhere")
        assert len(first.submitted) == num_before
        worker = await here.has_only(1)
        await go_on(here, client, shared, "again")
        frames = [each for each in worker.frames_of(worker.submitted[0]) if each.tokens]
        rest = "".join(chr(each.tokens[0].tokens[0].token_id) for each in frames)
        assert client.answer.texts[0] == had[:NUM_READ] + rest


async def test_a_greedy_answer_is_made_again_by_any_worker() -> None:
    async with fleet() as here:
        await here.has_only(0)
        expected = await here.ask("undisturbed", GREEDY)
        client, shared = await broken_off(here, GREEDY, NUM_READ - 2)
        await here.has_only(1)
        await go_on(here, client, shared, "again")
        assert client.answer == expected


async def test_an_answer_that_goes_on_where_a_seed_draws_others_is_written_as_of_there() -> None:
    async with fleet() as here:
        router = KeepingRouter(here.plane.source)
        here.troubles["r1"] = [Trouble(3, loses_its_engine)]
        client, begun = Client(), await router.begin("r1", wishes())
        await client.read(router, begun)
        assert len(client.answer.texts[0]) == len((await here.ask("r2", wishes())).texts[0])
        [last] = [worker for worker, had in here.given("r1") if had]
        record = await read(begun.keeper.batches, router.pipeline.share)
        assert record.first_part is not None
        assert record.first_part.draws == last.draws  # type: ignore[attr-defined]


async def test_once_a_client_has_no_more_than_was_told_its_worker_may_be_lost_to_any() -> None:
    async with fleet() as here:
        first = await here.has_only(0)
        client, shared = await broken_off(here, wishes(), NUM_READ - 2)
        other = next(each for each in here.workers if each is not first)
        await here.plane.store.join(other.member())
        await until(lambda: len(here.plane.fleet.ready(Role.DECODE)) == 2)
        here.troubles["again"] = [Trouble(6, loses_its_engine)]
        await go_on(here, client, shared, "again")
        assert [(worker, had) for worker, had in here.given("again") if worker is other] == [
            (other, [NUM_READ - 2 + 6])
        ]


@pytest.mark.parametrize(("draws", "is_read"), [(0, True), (1, False)])
async def test_a_router_that_knows_of_no_draws_reads_the_first_and_refuses_others(
    draws: int, is_read: bool
) -> None:
    async with fleet() as here:
        await here.has_only(draws)
        _, shared = await broken_off(here, wishes(), NUM_READ)
        [kept] = shared.answers.values()
        older = msgspec.msgpack.Decoder(list[Begun | Told | AllTold])
        if is_read:
            entries = [entry for batch in kept.batches for entry in older.decode(batch)]
            told = [entry.event() for entry in entries if isinstance(entry, Told)]
            assert told and all(isinstance(each, ChoiceTokens) for each in told)
        else:
            with pytest.raises(msgspec.ValidationError):
                older.decode(kept.batches[0])


async def test_a_worker_that_is_lost_before_is_followed_by_none_that_draws_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet_module, "NO_WORKER_GRACE_S", 0.05)
    async with fleet() as here:
        await here.has_only(0)
        client, shared = await broken_off(here, wishes(), NUM_READ - 2)
        [other] = [each for each in here.workers if each.draws]  # type: ignore[attr-defined]
        await here.plane.store.join(other.member())
        await until(lambda: len(here.plane.fleet.ready(Role.DECODE)) == 2)
        here.troubles["again"] = [Trouble(1, loses_its_engine)]
        with pytest.raises(WorkerLost):
            await go_on(here, client, shared, "again")
        assert other.submitted == []
