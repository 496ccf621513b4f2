"""A server that makes nothing for anybody is doubted by what was foretold."""

from __future__ import annotations

import asyncio

from router.dispatch.server_patience import LEAST_S, SLACK, ServerPatience
from router.dispatch.time_limits import DefaultTimes, TimeLimits
from router.fleet.standstill import Standstill
from tests.virtual_loop import run_virtually


def limits_now(between_tokens_s: float = 600.0) -> TimeLimits:
    clock = asyncio.get_running_loop().time
    times = DefaultTimes(first_token_s=600.0, between_tokens_s=between_tokens_s, clock=clock)
    return times.limits(clock(), None)


class Watched:
    """A server with one request; `ends` are the moments at which it was doubted."""

    def __init__(self, foretold_s: float, between_tokens_s: float = 600.0) -> None:
        self.clock = asyncio.get_running_loop().time
        self.began_s = self.clock()
        self.standstill = Standstill(self.clock)
        self.standstill.given(is_elsewhere=False)
        self.ends: list[float] = []
        self.patience = ServerPatience(
            foretold_s,
            self.standstill,
            limits_now(between_tokens_s),
            lambda waited_s: self.ends.append(self.clock() - self.began_s),
        )


def test_it_is_doubted_once_after_several_times_what_was_foretold() -> None:
    async def seen() -> None:
        server = Watched(foretold_s=5.0)
        await asyncio.sleep(500.0)
        assert server.ends == [5.0 * SLACK]

    run_virtually(seen())


def test_what_is_foretold_as_nothing_has_some_seconds() -> None:
    async def seen() -> None:
        server = Watched(foretold_s=0.0)
        await asyncio.sleep(500.0)
        assert server.ends == [LEAST_S]

    run_virtually(seen())


def test_no_server_is_waited_for_longer_than_a_token_may_take() -> None:
    async def seen() -> None:
        server = Watched(foretold_s=100.0, between_tokens_s=2.0)
        await asyncio.sleep(50.0)
        assert server.ends == [2.0]

    run_virtually(seen())


def test_one_that_makes_something_for_others_is_not_doubted() -> None:
    async def seen() -> None:
        server = Watched(foretold_s=0.0)
        for _ in range(20):
            await asyncio.sleep(LEAST_S / 2)
            server.standstill.worked()
        assert not server.ends and not server.patience.is_at_its_end
        await asyncio.sleep(LEAST_S * 2)
        assert len(server.ends) == 1

    run_virtually(seen())


def test_one_that_has_said_something_is_doubted_no_more() -> None:
    async def seen() -> None:
        server = Watched(foretold_s=0.0)
        await asyncio.sleep(LEAST_S / 2)
        server.patience.stop()
        await asyncio.sleep(LEAST_S * 5)
        assert not server.ends and not server.patience.is_at_its_end

    run_virtually(seen())
