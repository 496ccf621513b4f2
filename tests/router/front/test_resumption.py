"""Streams that another connection goes on with: what was read and the rest are the whole."""

import asyncio

import pytest

from cluster.errors import InvalidRequest, NotReady, NotResumable, ResumedElsewhere
from cluster.process.background import cancel
from router.resume.write_behind import SIGN_OF_LIFE_S
from router.tenants.tenant import Tenant
from tests.router.model_worker import Trouble, loses_its_engine, says_nothing_more
from tests.router.resume_bench import Client, KeepingRouter, SharedMemory, has_told
from tests.router.streams_bench import KINDS, bench, undisturbed, wishes

EVERY_TOKEN = range(1, 41)
BEFORE_ITS_STOP = range(1, 29)


@pytest.mark.parametrize("kind", KINDS)
async def test_after_whatever_token_the_connection_breaks_the_answer_is_the_same(kind: str) -> None:
    async with bench() as here:
        router = KeepingRouter(here.plane.source)
        asked, expected = await undisturbed(here, kind)
        for after in BEFORE_ITS_STOP if asked.stop else EVERY_TOKEN:
            name, client = f"r{after}", Client()
            here.troubles[name] = [Trouble(after, says_nothing_more)]
            begun = await router.begin(name, asked)
            reading = asyncio.create_task(client.read(router, begun))
            told = asyncio.create_task(has_told(router, begun, after))
            await asyncio.wait([reading, told], return_when=asyncio.FIRST_COMPLETED)
            await cancel([reading, told])
            rest = await router.resume(client.ids[-1], f"again{after}")
            await client.read(router, rest)
            assert client.answer == expected
            assert [len(b) for _, b in here.given(f"again{after}")] == [asked.sampling.n]


@pytest.mark.parametrize("lag", [0, 1, 7, 40])
@pytest.mark.parametrize("kind", KINDS)
async def test_what_another_router_knows_may_be_older_than_what_the_client_has(
    kind: str, lag: int
) -> None:
    """The first router dies after its client has read so much more than it had written."""
    async with bench() as here:
        shared = SharedMemory()
        dead, alive = (KeepingRouter(here.plane.source, shared) for _ in range(2))
        asked, expected = await undisturbed(here, kind)
        for written in range(1, 42 - lag):
            client, begun = Client(), await dead.begin(f"r{written}", asked)
            await client.read(dead, begun, written + lag, written_at=written)
            await client.read(alive, await alive.resume(client.ids[-1], f"again{written}"))
            assert client.answer == expected


async def test_only_the_tenant_itself_has_the_rest_and_others_learn_nothing() -> None:
    async with bench() as here:
        router = KeepingRouter(here.plane.source, SharedMemory())
        mine, other = Tenant("mine"), Tenant("other")
        client = Client()
        await client.read(router, await router.begin("r1", wishes(), mine), 1)
        await router.behind.look()
        unknown = client.ids[-1].replace(client.ids[-1][:32], "0" * 32)
        refusals = []
        for event_id, tenant in (
            (client.ids[-1], other),
            (client.ids[-1], Tenant()),
            (unknown, mine),
        ):
            with pytest.raises(NotResumable) as refusal:
                await router.resume(event_id, tenant=tenant)
            refusals.append(refusal.value.message)
        assert len(set(refusals)) == 1
        await client.read(router, await router.resume(client.ids[-1], tenant=mine))
        assert client.answer.reasons


async def test_another_router_without_a_store_says_so() -> None:
    async with bench() as here:
        first, second = KeepingRouter(here.plane.source), KeepingRouter(here.plane.source)
        client = Client()
        await client.read(first, await first.begin("r1", wishes()), 1)
        with pytest.raises(NotResumable, match="share no store"):
            await second.resume(client.ids[-1])


async def test_while_the_store_is_away_the_router_that_began_goes_on_alone() -> None:
    async with bench() as here:
        shared = SharedMemory(is_away=True)
        first, second = (KeepingRouter(here.plane.source, shared) for _ in range(2))
        _, expected = await undisturbed(here, "one choice")
        client = Client()
        await client.read(first, await first.begin("r1", wishes()), 1)
        await first.behind.look()
        with pytest.raises(NotReady, match="is away"):
            await second.resume(client.ids[-1])
        await client.read(first, await first.resume(client.ids[-1]))
        assert client.answer == expected


async def test_after_its_time_nobody_has_the_rest() -> None:
    now_s = 0.0
    async with bench() as here:
        router = KeepingRouter(here.plane.source, clock=lambda: now_s)
        client = Client()
        await client.read(router, await router.begin("r1", wishes()), 1)
        now_s = 59.9
        await client.read(router, await router.resume(client.ids[-1]), 2)
        now_s += 60.0
        with pytest.raises(NotResumable, match="kept for 60 s"):
            await router.resume(client.ids[-1])
        await router.behind.look()
        assert (len(router.answers), router.answers.num_bytes) == (0, 0)


async def test_who_was_told_an_answer_gets_no_more_once_another_connection_has_it() -> None:
    """At the same router at once; at another one when it next writes."""
    async with bench() as here:
        shared, now_s = SharedMemory(), 0.0
        first, second = (
            KeepingRouter(here.plane.source, shared, clock=lambda: now_s) for _ in range(2)
        )
        _, expected = await undisturbed(here, "one choice")
        for resuming in (first, second):
            name, client, stale = f"r{id(resuming)}", Client(), Client()
            here.troubles[name] = [Trouble(5, says_nothing_more)]
            begun = await first.begin(name, wishes())
            reading = asyncio.create_task(stale.read(first, begun))
            await has_told(first, begun, 5)
            await first.behind.look()
            client.ids.append(f"{begun.place.answer_id}:-")
            await client.read(resuming, await resuming.resume(client.ids[-1], f"{name}-2"))
            now_s += SIGN_OF_LIFE_S
            await first.behind.look()
            worker = here.holder_of(name)
            for frame in [*worker.frames_of(worker.submitted[-1])][5:]:
                worker.send(frame)
            with pytest.raises(ResumedElsewhere):
                await reading
            assert client.answer == expected


async def test_one_answer_goes_on_again_and_again() -> None:
    async with bench() as here:
        shared = SharedMemory()
        routers = [KeepingRouter(here.plane.source, shared) for _ in range(3)]
        _, expected = await undisturbed(here, "two choices")
        client = Client()
        name = "r0"
        here.troubles[name] = [Trouble(3, says_nothing_more)]
        part = await routers[0].begin(name, wishes(n=2))
        for number in range(1, 9):
            router = routers[(number - 1) % 3]
            reading = asyncio.create_task(client.read(router, part))
            await has_told(router, part, 3 * number)
            await router.behind.look()
            await cancel([reading])
            name = f"r{number}"
            here.troubles[name] = [Trouble(3, says_nothing_more)]
            part = await routers[number % 3].resume(client.ids[-1], name)
        await client.read(routers[8 % 3], await routers[8 % 3].resume(client.ids[-1], "last"))
        assert client.answer == expected


async def test_a_worker_that_is_lost_after_that_is_left_as_ever() -> None:
    async with bench() as here:
        router = KeepingRouter(here.plane.source)
        _, expected = await undisturbed(here, "two choices")
        client = Client()
        here.troubles["r1"] = [Trouble(10, says_nothing_more)]
        begun = await router.begin("r1", wishes(n=2))
        reading = asyncio.create_task(client.read(router, begun))
        await has_told(router, begun, 10)
        await cancel([reading])
        here.troubles["r2"] = [Trouble(10, loses_its_engine)]
        await client.read(router, await router.resume(client.ids[-1], "r2"))
        assert client.answer == expected
        assert sorted(begun for _, begun in here.given("r2")) == [[10, 10], [20, 20]]


async def test_an_id_of_another_shape_than_the_answer_is_refused() -> None:
    async with bench() as here:
        router = KeepingRouter(here.plane.source)
        client = Client()
        await client.read(router, await router.begin("r1", wishes()), 1)
        with pytest.raises(InvalidRequest, match="2 choices"):
            await router.resume(client.ids[-1] + ",-")
