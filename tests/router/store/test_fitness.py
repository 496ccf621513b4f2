"""A store that is too old for routers, or lacks commands, is said to be when it comes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from structlog.testing import capture_logs

from router.store.fitness import NEEDED, QUESTIONS, what_it_lacks
from router.store.link import StoreCommand, StoreRefusal, StoreReply
from router.store.shared_store import SharedStore
from tests.redis_server import RedisServer
from tests.router.store.fake_link import FakeLink, knows_all
from tests.router.store.stores import NAMES, new_store, running
from tests.virtual_loop import run_virtually

ROUTER = Path(__file__).parents[3] / "router"
COMMAND = re.compile(r"""(?:\(|redis\.call\()["']([A-Z]{3,})["'],""")
UNASKED = {"INFO", "COMMAND", "MAXLEN", "MISCONF"}
"""What asks, and words of that form that are no commands."""
ASKS_ANOTHER = {"vllm"}
"""Rooms that have a connection of their own, to a Redis that need not be the routers'."""


def old(command: StoreCommand) -> StoreReply | StoreRefusal:
    """Redis 5."""
    if command[0] == "INFO":
        return b"# Server\r\nredis_version:5.0.14\r\n"
    if command[0] == "COMMAND":
        return [None if name == "ZMSCORE" else [b"known"] for name in command[2:]]
    return knows_all(command)


def lines_of(link: FakeLink, num_connections: int = 1) -> Sequence[dict[str, object]]:
    """What the log has once a store has come so many times."""

    async def look() -> list[dict[str, object]]:
        store = SharedStore(link, NAMES, clock=asyncio.get_running_loop().time)
        with capture_logs() as lines:
            looking = asyncio.create_task(store.run())
            for _ in range(num_connections):
                await asyncio.sleep(1.5)
                assert store.is_there
                link.close()
                await asyncio.sleep(1.0)
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        return [line for line in lines if "lacks" in str(line["event"])]

    return run_virtually(look())


def test_an_old_store_is_named_once_with_its_version_and_is_used_all_the_same() -> None:
    [line] = lines_of(FakeLink(old), num_connections=2)
    assert line["cause"] == "redis 5.0.14 is older than 6.2; redis 5.0.14 does not know ZMSCORE"


def test_a_store_of_another_maker_goes_by_its_own_name() -> None:
    info = b"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\n"
    known: list[object] = [[b"known"]] * (len(NEEDED) - 1)
    assert what_it_lacks([info, [None, *known]]) == f"valkey 8.1.0 does not know {NEEDED[0]}"
    assert what_it_lacks([info, [[b"known"], *known]]) == ""


def test_a_store_of_a_cluster_is_named_and_a_version_that_is_none_is_believed() -> None:
    known: list[object] = [[b"known"]] * len(NEEDED)
    info = b"redis_version:" + b"9" * 5000 + b".1\r\nredis_mode:cluster\r\n"
    assert "one of a cluster" in what_it_lacks([info, known])


def test_a_store_that_may_not_be_asked_is_taken_as_it_is() -> None:
    refusal = StoreRefusal("NOPERM this user has no permissions to run the 'info' command")
    assert what_it_lacks([refusal, refusal]) == ""
    assert lines_of(FakeLink()) == []


async def test_a_real_redis_of_today_lacks_nothing(redis_server: RedisServer) -> None:
    store = new_store(redis_server.url)
    async with running(store):
        assert what_it_lacks(await store.ask(*QUESTIONS)) == ""


def test_every_command_that_routers_send_is_looked_for() -> None:
    """Those of scripts as well."""
    sent = {
        command
        for path in ROUTER.rglob("*.py")
        if "router.store" in (text := path.read_text()) and path.parent.name not in ASKS_ANOTHER
        for command in COMMAND.findall(text)
    }
    assert sent - UNASKED == set(NEEDED)
