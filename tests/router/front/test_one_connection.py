"""Many ask for the rest of one stream: one connection has it, and nothing is lost by asking."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import msgspec
import pytest

from cluster.errors import InvalidRequest, NotResumable, ResumedElsewhere
from cluster.process.background import cancel
from router.front.kept_request import VERSION, KeptRequest
from router.front.resumption import Resumable
from router.resume.shared_answers import TakenAnswer
from tests.router.model_worker import Trouble, says_nothing_more
from tests.router.resume_bench import Client, KeepingRouter, SharedMemory, has_told
from tests.router.streams_bench import Bench, bench, undisturbed, wishes


class Slow(SharedMemory):
    """Others come in between."""

    async def take(self, key: bytes) -> TakenAnswer | None:
        await asyncio.sleep(0)
        taken = await super().take(key)
        await asyncio.sleep(0)
        return taken


async def broken_off(here: Bench, router: KeepingRouter, name: str = "r1") -> Client:
    """A client that has read five tokens of an answer, which is written."""
    client = Client()
    here.troubles[name] = [Trouble(5, says_nothing_more)]
    begun = await router.begin(name, wishes())
    reading = asyncio.create_task(client.read(router, begun))
    await has_told(router, begun, 5)
    await router.behind.look()
    await cancel([reading])
    return client


async def told(router: KeepingRouter, part: Resumable, ids: list[str]) -> Client | None:
    """None: somebody else was."""
    client = Client(ids=list(ids))
    with suppress(ResumedElsewhere):
        async for _ in router.pipeline.stream(part.prepared):
            pass
        return client
    return None


@pytest.mark.parametrize("shared", [Slow(), None], ids=["a store", "no store"])
async def test_of_many_who_ask_at_once_one_is_told_the_rest(shared: SharedMemory | None) -> None:
    async with bench() as here:
        router = KeepingRouter(here.plane.source, shared)
        client = await broken_off(here, router)
        asking = [router.resume(client.ids[-1], f"again{number}") for number in range(5)]
        parts = await asyncio.gather(*asking, return_exceptions=True)
        going = [each for each in parts if isinstance(each, Resumable)]
        others = [each for each in parts if not isinstance(each, Resumable)]
        assert all(isinstance(each, ResumedElsewhere) for each in others)
        ends = await asyncio.gather(*(told(router, each, client.ids) for each in going))
        assert len([each for each in ends if each is not None]) == 1
        assert len([n for n in range(5) if here.given(f"again{n}")]) == 1


async def test_one_who_asked_earlier_and_is_read_later_does_not_take_it_back() -> None:
    async with bench() as here:
        router = KeepingRouter(here.plane.source, SharedMemory())
        client = await broken_off(here, router)
        first = await router.resume(client.ids[-1], "again1")
        second = await router.resume(client.ids[-1], "again2")
        assert second.keeper.epoch == 2
        with pytest.raises(ResumedElsewhere):
            router.resumption._keep(first.keeper)
        assert list(router.answers) == [second.keeper]


async def test_a_question_that_is_refused_takes_nothing_from_whoever_has_the_stream() -> None:
    async with bench() as here:
        shared = SharedMemory()
        first, second = (KeepingRouter(here.plane.source, shared) for _ in range(2))
        client = await broken_off(here, first)
        for router in (first, second):
            with pytest.raises(InvalidRequest, match="2 choices"):
                await router.resume(client.ids[-1] + ",-")
        assert [each.epoch for each in shared.answers.values()] == [0]


@pytest.mark.parametrize("change", ["an older head", "a newer version", "unknown batches"])
async def test_what_a_router_of_another_version_wrote_is_not_resumable(change: str) -> None:
    async with bench() as here:
        shared = SharedMemory()
        first, second = (KeepingRouter(here.plane.source, shared) for _ in range(2))
        client = await broken_off(here, first)
        [(key, kept)] = shared.answers.items()
        request = KeptRequest.read(kept.head)
        newer = msgspec.structs.replace(request, version=VERSION + 1)
        shared.answers[key] = {
            "an older head": replace(kept, head=msgspec.msgpack.encode(["chat", b""])),
            "a newer version": replace(kept, head=msgspec.msgpack.encode(newer)),
            "unknown batches": replace(kept, batches=[msgspec.msgpack.encode([[9, 9]])]),
        }[change]
        with pytest.raises(NotResumable, match="another version"):
            await second.resume(client.ids[-1])
        is_taken = change == "unknown batches"
        assert shared.answers[key].epoch == (1 if is_taken else 0)


async def test_over_a_store_that_was_emptied_the_newest_still_goes_on() -> None:
    async with bench() as here:
        shared = SharedMemory()
        router = KeepingRouter(here.plane.source, shared)
        _, expected = await undisturbed(here, "one choice")
        client = await broken_off(here, router)
        shared.wipe()
        part = await router.resume(client.ids[-1], "again")
        assert part.keeper.epoch == 1
        await client.read(router, part)
        assert client.answer == expected


async def test_what_is_told_after_a_store_was_emptied_another_router_has_all_the_same() -> None:
    async with bench() as here:
        shared = SharedMemory()
        dead, alive = (KeepingRouter(here.plane.source, shared) for _ in range(2))
        asked, expected = await undisturbed(here, "one choice")
        client, begun = Client(), await dead.begin("r1", asked)
        await client.read(dead, begun, 3, written_at=2)
        shared.wipe()
        for _ in range(2):
            dead.answers.write(begun.keeper)
            await dead.behind.look()
        [kept] = shared.answers.values()
        assert kept.batches == begun.keeper.batches
        await client.read(alive, await alive.resume(client.ids[-1], "again"))
        assert client.answer == expected


async def test_a_stream_that_waits_in_line_again_does_not_make_way() -> None:
    now_s = 0.0
    async with bench() as here:
        router = KeepingRouter(here.plane.source, clock=lambda: now_s)
        client = await broken_off(here, router)
        here.troubles["again"] = [Trouble(0, says_nothing_more)]
        part = await router.resume(client.ids[-1], "again")
        waiting = asyncio.create_task(client.read(router, part))
        async with asyncio.timeout(30):
            while not here.given("again"):
                await asyncio.sleep(0)
        now_s = 600.0
        await router.behind.look()
        assert part.keeper.is_kept
        await cancel([waiting])
        await router.behind.look()
        now_s = 660.0
        await router.behind.look()
        assert not part.keeper.is_kept
