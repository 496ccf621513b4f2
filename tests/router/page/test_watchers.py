"""One snapshot a second for all who watch, and none for nobody."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from cluster.errors import NotReady
from cluster.process.background import Background, nothing_needed
from router.page.sight import Sight
from router.page.snapshot import Snapshot
from router.page.survey import Survey
from router.page.watchers import MAX_WATCHERS, Watchers
from tests.router.page.staged import lasting_plane, survey_of
from tests.virtual_time import VirtualTime, settle


class CountedSurvey(Survey):
    """Counts what it is asked for; fails once where a test says so."""

    num_taken = 0
    fails = False

    async def take(self) -> Snapshot:
        if self.fails:
            self.fails = False
            raise RuntimeError("as the test says")
        self.num_taken += 1
        return await super().take()


@asynccontextmanager
async def watchers_of() -> AsyncIterator[tuple[Watchers, CountedSurvey, VirtualTime]]:
    time = VirtualTime()
    async with lasting_plane() as plane:
        survey = survey_of(plane)
        counted = CountedSurvey(plane, survey._around, survey._history)
        background = Background(nothing_needed, clock=time, sleep=time.sleep)
        watchers = Watchers(counted, background, time.sleep)
        yield watchers, counted, time
        watchers.close()
        await background.close()


async def test_nobody_costs_nothing_and_sixteen_cost_one() -> None:
    async with watchers_of() as (watchers, survey, time):
        await time.advance(10)
        assert survey.num_taken == 0
        with watchers.watching(Sight.NAMES) as first:
            await time.advance(0.5)
            with watchers.watching(Sight.COUNTS) as second:
                await time.advance(3)
                assert survey.num_taken == 4
                frames = [await each.next() for each in (first, second)]
                assert [msgspec.json.decode(frame or b"")["seq"] for frame in frames] == [4, 4]
        await time.advance(10)
        assert survey.num_taken == 4 and watchers.num_watchers == 0
        with watchers.watching(Sight.NAMES) as again:
            assert await again.next() is not None


async def test_there_are_so_many_places() -> None:
    async with watchers_of() as (watchers, _, _):
        places = [watchers.watching(Sight.NAMES) for _ in range(MAX_WATCHERS)]
        for place in places:
            place.__enter__()
        with pytest.raises(NotReady, match="16 others watch"), watchers.watching(Sight.NAMES):
            pass
        places[3].__exit__(None, None, None)
        with watchers.watching(Sight.NAMES):
            assert watchers.num_watchers == MAX_WATCHERS
        for place in (*places[:3], *places[4:]):
            place.__exit__(None, None, None)


async def test_whoever_has_not_signed_in_makes_room_for_an_operator_and_takes_nobody_s_place() -> (
    None
):
    async with watchers_of() as (watchers, _, _):
        with contextlib.ExitStack() as places:
            strangers = [
                places.enter_context(watchers.watching(Sight.COUNTS)) for _ in range(MAX_WATCHERS)
            ]
            with pytest.raises(NotReady), watchers.watching(Sight.COUNTS):
                pass
            for _ in range(MAX_WATCHERS):
                places.enter_context(watchers.watching(Sight.NAMES))
            assert watchers.num_watchers == MAX_WATCHERS
            assert [await each.next() for each in strangers] == [None] * MAX_WATCHERS
            with pytest.raises(NotReady), watchers.watching(Sight.NAMES):
                pass
        assert watchers.num_watchers == 0


async def test_who_is_slow_has_the_newest_and_not_all_that_it_missed() -> None:
    async with watchers_of() as (watchers, _, time):
        with watchers.watching(Sight.NAMES) as slow:
            await time.advance(20)
            newest = msgspec.json.decode(await slow.next() or b"")["seq"]
            assert newest == 21
            waiting = asyncio.create_task(slow.next())
            await settle()
            assert not waiting.done()
            waiting.cancel()


async def test_a_snapshot_that_fails_ends_the_streams_and_the_next_watcher_begins_anew() -> None:
    async with watchers_of() as (watchers, survey, _):
        survey.fails = True
        with watchers.watching(Sight.NAMES) as first:
            assert await first.next() is None
        with watchers.watching(Sight.NAMES) as second:
            assert await second.next() is not None


async def test_an_end_of_the_page_is_one_for_all_who_watch() -> None:
    async with watchers_of() as (watchers, _, _):
        with watchers.watching(Sight.NAMES) as one:
            watchers.close()
            assert await one.next() is None
        with pytest.raises(NotReady), watchers.watching(Sight.NAMES):
            pass
