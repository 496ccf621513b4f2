"""How long a call to the store may take is the operator's word; the log says who was too late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from cluster.config import RouterOptions
from cluster.errors import ConfigError
from cluster.options import load_options
from router.store.errors import StoreAway, StoreLate
from router.store.patience import Patience
from router.store.shared_store import LATE_IN_A_ROW, SharedStore
from tests.router.store.fake_link import FakeLink
from tests.router.store.stores import NAMES
from tests.virtual_loop import run_virtually


@asynccontextmanager
async def store_of(link: FakeLink, timeout_s: float) -> AsyncIterator[SharedStore]:
    """In virtual time; it has looked for the store once."""
    clock = asyncio.get_running_loop().time
    store = SharedStore(link, NAMES, patience=Patience.of_calls(timeout_s), clock=clock)
    looking = asyncio.create_task(store.run())
    try:
        await asyncio.sleep(0.01 + 6 * link.took_s)
        yield store
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


def test_a_store_that_is_farther_away_is_there_for_those_who_wait_longer() -> None:
    async def look(timeout_s: float) -> bool:
        link = FakeLink()
        link.took_s = 0.06
        async with store_of(link, timeout_s) as store:
            return store.is_there and await store.ask(("PING",)) == [b"OK"]

    assert not run_virtually(look(0.02))
    assert run_virtually(look(0.1))


def test_a_call_waits_as_long_as_the_option_says_and_no_longer() -> None:
    async def look() -> float:
        link = FakeLink()
        clock = asyncio.get_running_loop().time
        async with store_of(link, 0.1) as store:
            link.took_s = 0.3
            began_s = clock()
            with pytest.raises(StoreLate):
                await store.ask(("PING",))
            return clock() - began_s

    assert run_virtually(look()) == pytest.approx(0.1)


def test_one_that_is_late_again_and_again_is_away_and_the_log_has_both_times() -> None:
    async def look() -> tuple[list[dict[str, object]], int]:
        link = FakeLink()
        async with store_of(link, 0.05) as store:
            link.took_s, link.num_exchanges = 0.08, 0
            with capture_logs() as lines:
                while store.is_there:
                    with pytest.raises(StoreAway):
                        await store.ask(("PING",))
            return list(lines), link.num_exchanges

    [line], num_exchanges = run_virtually(look())
    assert "took 80 ms, limit 50 ms (--store-timeout-s)" in str(line["cause"])
    assert num_exchanges == LATE_IN_A_ROW


def test_one_that_stands_still_is_away_and_the_log_has_the_limit() -> None:
    async def look() -> list[dict[str, object]]:
        link = FakeLink()
        async with store_of(link, 0.05) as store:
            link.took_s = 3600
            with capture_logs() as lines:
                with pytest.raises(StoreLate):
                    await store.ask(("PING",))
                await asyncio.sleep(1)
            assert not store.is_there
            return list(lines)

    [line] = run_virtually(look())
    assert line["cause"] == "no answer, limit 250 ms"


def test_one_that_is_late_when_it_comes_is_said_to_be() -> None:
    async def look() -> list[dict[str, object]]:
        link = FakeLink()
        link.took_s = 0.03
        with capture_logs() as lines:
            async with store_of(link, 0.02):
                return list(lines)

    [line] = run_virtually(look())
    assert "took 30 ms, limit 20 ms (--store-timeout-s)" in str(line["cause"])


def test_a_limit_that_no_request_could_wait_for_is_refused() -> None:
    usual = load_options(RouterOptions, {}, environ={}).store
    assert usual.store_timeout_s == Patience().call_s == 0.02
    with pytest.raises(ConfigError, match="store-timeout"):
        load_options(RouterOptions, {"store_timeout_s": 10.0}, environ={})
