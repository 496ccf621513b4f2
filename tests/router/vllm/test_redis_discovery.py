"""vLLM servers that write themselves into a real Redis: they join, go and come back, and what else
is written there hurts nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from cluster.process.background import cancel
from cluster.world import World
from router.store.address import read_address
from router.store.names import StoreNames
from router.store.redis_link import RedisLink
from router.vllm import redis_discovery
from router.vllm.allowed_hosts import AllowedHosts
from router.vllm.redis_discovery import GRACE_S, LOOK_INTERVAL_S, RedisDiscovery
from router.vllm.server_address import MAX_SERVERS
from tests.redis_server import RedisServer
from tests.router.front_fakes import until

NAMES = StoreNames("tests", "a [model]*")
NAMED = "tests:fleet:a [model]*:vllm"
KEY = f"{NAMED}:"


class Looks:
    """What one discovery tells of a real Redis. Its clock stands still until it is moved, and
    between two looks it waits for nobody."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.num_looks = 0
        self.told: list[str] = []
        self.words: list[str] = []
        self.pause_s = self.longest_s = 0.0

    async def sleep(self, delay_s: float) -> None:
        self.num_looks += 1
        self.pause_s, self.longest_s = delay_s, max(self.longest_s, delay_s)
        await asyncio.sleep(0.001)

    async def one_more(self) -> list[str]:
        """What is told after a look that began from now on."""
        wanted = self.num_looks + 2
        await until(lambda: self.num_looks >= wanted, "a look began and ended")
        return self.told

    async def run(self, discovery: RedisDiscovery) -> None:
        async for addresses in discovery.servers():
            self.told = [address.worker_id for address in addresses]
            self.words = [address.words for address in addresses]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as redis:
        yield redis


@pytest.fixture
def redis(server: RedisServer) -> RedisServer:
    server.do("FLUSHALL")
    return server


@asynccontextmanager
async def looking(redis: RedisServer) -> AsyncIterator[Looks]:
    looks = Looks()
    world = World(clock=lambda: looks.now_s, sleep=looks.sleep)
    discovery = RedisDiscovery(
        RedisLink(read_address(redis.url)), NAMES, world, AllowedHosts("private")
    )
    task = asyncio.create_task(looks.run(discovery))
    try:
        yield looks
    finally:
        await cancel([task])


def write(redis: RedisServer, place: str, words: str = "") -> None:
    redis.do("SET", f"{KEY}{place}", words or f"http://{place},role=decode,lease=5")
    redis.do("SADD", NAMED, place)


async def test_a_server_joins_goes_after_its_grace_and_comes_back(redis: RedisServer) -> None:
    write(redis, "e:1")
    async with looking(redis) as looks:
        write(redis, "d:1")
        assert await looks.one_more() == ["vllm-d:1", "vllm-e:1"]
        redis.do("DEL", f"{KEY}d:1")
        looks.now_s += GRACE_S / 2
        assert await looks.one_more() == ["vllm-d:1", "vllm-e:1"]
        looks.now_s += GRACE_S / 2
        assert await looks.one_more() == ["vllm-e:1"]
        write(redis, "d:1")
        assert await looks.one_more() == ["vllm-d:1", "vllm-e:1"]


async def test_a_key_that_nobody_renews_is_gone_by_its_lease(redis: RedisServer) -> None:
    async with looking(redis) as looks:
        redis.do("SADD", NAMED, "d:1")
        redis.do("SET", f"{KEY}d:1", "http://d:1", "PX", "50")
        write(redis, "e:1")
        await until(lambda: "vllm-e:1" in looks.told, "a new server is told")
        await until(lambda: redis.do("EXISTS", f"{KEY}d:1") == b":0\r\n", "a lease has passed")
        looks.now_s += GRACE_S
        assert await looks.one_more() == ["vllm-e:1"]


async def test_a_server_that_is_written_anew_has_its_new_role(redis: RedisServer) -> None:
    async with looking(redis) as looks:
        write(redis, "d:1", "http://d:1,role=prefill")
        await looks.one_more()
        write(redis, "d:1", "http://d:1,role=decode")
        assert await looks.one_more() == ["vllm-d:1"]


async def test_a_redis_that_is_away_or_comes_back_empty_takes_no_server_away(
    redis: RedisServer,
) -> None:
    write(redis, "d:1")
    async with looking(redis) as looks:
        assert await looks.one_more() == ["vllm-d:1"]
        redis.kill()
        await looks.one_more()
        looks.now_s += 10 * GRACE_S
        assert await looks.one_more() == ["vllm-d:1"]
        redis.start()
        write(redis, "e:1")
        await until(lambda: len(looks.told) == 2, "both are told")
        write(redis, "d:1")
        looks.now_s += GRACE_S / 2
        assert await looks.one_more() == ["vllm-d:1", "vllm-e:1"]


@pytest.mark.parametrize(
    "words",
    [
        "d:1",
        "http://",
        "http://a b:1",
        "http://x:99999",
        "http://x:1,role=king",
        "http://x:1,http://y:1",
        "http://x:1,lease=nan",
        "http://169.254.169.254:80",
        "http://vllm.example.com:8000",
        "file:///etc/passwd",
        "\x1b[2J",
        "http://x:1" + "," * 10_000_000,
    ],
)
async def test_words_that_are_no_server_are_left_out(redis: RedisServer, words: str) -> None:
    write(redis, "bad:1", words)
    write(redis, "d:1")
    redis.do("RPUSH", f"{KEY}list:1", "http://list:1")
    redis.do("SADD", NAMED, "list:1")
    async with looking(redis) as looks:
        assert await looks.one_more() == ["vllm-d:1"]


async def test_of_one_place_that_is_written_twice_one_counts(redis: RedisServer) -> None:
    write(redis, "d:1", "http://d:1,role=prefill")
    write(redis, "again", "http://d:1,role=decode")
    async with looking(redis) as looks:
        assert await looks.one_more() == ["vllm-d:1"]


async def test_a_redis_that_was_wiped_takes_no_server_away_and_is_said(redis: RedisServer) -> None:
    write(redis, "d:1")
    async with looking(redis) as looks:
        assert await looks.one_more() == ["vllm-d:1"]
        with capture_logs() as lines:
            redis.do("FLUSHALL")
            for _ in range(2):
                looks.now_s += 2 * GRACE_S
                assert await looks.one_more() == ["vllm-d:1"]
        assert [line["reason"] for line in lines] == ["no server is written there any more"]
        write(redis, "e:1")
        assert await looks.one_more() == ["vllm-d:1", "vllm-e:1"]
        looks.now_s += GRACE_S
        assert await looks.one_more() == ["vllm-e:1"]


async def test_of_two_at_one_place_the_known_one_stays_and_both_are_said(
    redis: RedisServer,
) -> None:
    write(redis, "d:1", "http://d:1,role=prefill")
    async with looking(redis) as looks:
        await looks.one_more()
        with capture_logs() as lines:
            write(redis, "again", "http://d:1,lease=9")
            await looks.one_more()
        assert looks.words == ["http://d:1,role=prefill,lease=30"]
        said = "known: http://d:1,role=prefill,lease=30; left out: http://d:1,role=both,lease=9"
        assert [line["what"] for line in lines] == [said]


async def test_one_too_many_is_left_out_and_pushes_no_known_one_out(redis: RedisServer) -> None:
    write(redis, "z:1")
    async with looking(redis) as looks:
        assert await looks.one_more() == ["vllm-z:1"]
        with capture_logs() as lines:
            fill(redis, KEY, MAX_SERVERS, NAMED)
            told = await looks.one_more()
        assert len(told) == MAX_SERVERS and "vllm-z:1" in told
        assert [line["what"] for line in lines] == [f"{MAX_SERVERS} at most"]


async def test_those_that_may_come_back_count_as_well(redis: RedisServer) -> None:
    fill(redis, KEY, MAX_SERVERS, NAMED)
    async with looking(redis) as looks:
        assert len(await looks.one_more()) == MAX_SERVERS
        redis.do("FLUSHALL")
        write(redis, "z:1")
        told = await looks.one_more()
        assert len(told) == MAX_SERVERS and "vllm-z:1" not in told
        looks.now_s += GRACE_S
        assert await looks.one_more() == ["vllm-z:1"]


async def test_names_whose_leases_have_ended_are_met_once_and_looks_come_less_often_then(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with looking(redis) as looks:
        write(redis, "d:1")
        await looks.one_more()
        assert looks.pause_s == LOOK_INTERVAL_S
        monkeypatch.setattr(redis_discovery, "PAGE_KEYS", 10)
        redis.do("EVAL", "for i = 1, 3000 do redis.call('SADD', KEYS[1], i) end", "1", NAMED)
        assert await looks.one_more() == ["vllm-d:1"]
        assert looks.longest_s > 1.2 * LOOK_INTERVAL_S
        assert redis.do("SCARD", NAMED) == b":1\r\n"
        await looks.one_more()
        assert looks.pause_s == LOOK_INTERVAL_S


async def test_a_look_goes_through_none_of_a_million_keys_of_others(redis: RedisServer) -> None:
    fill(redis, "others:", 1_000_000)
    write(redis, "d:1")
    async with looking(redis) as looks:
        assert await looks.one_more() == ["vllm-d:1"]
        assert looks.pause_s == LOOK_INTERVAL_S
    calls = redis.do("INFO", "commandstats").decode()
    assert "cmdstat_sscan:" in calls and "cmdstat_scan:" not in calls


async def test_more_servers_than_can_be_take_none_of_those_that_are_known_away(
    redis: RedisServer,
) -> None:
    write(redis, "d:1")
    async with looking(redis) as looks:
        assert await looks.one_more() == ["vllm-d:1"]
        fill(redis, KEY, 100_000, NAMED)
        redis.do("DEL", f"{KEY}d:1")
        looks.now_s += GRACE_S
        assert await looks.one_more() == ["vllm-d:1"]


async def test_others_keys_in_the_same_redis_are_in_nobodys_way(redis: RedisServer) -> None:
    fill(redis, "tests:fleet:a model:vllm:", 100_000)
    write(redis, "d:1")
    async with looking(redis) as looks:
        assert await looks.one_more() == ["vllm-d:1"]


async def test_a_set_that_takes_too_long_to_go_through_is_given_up(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with looking(redis) as looks:
        write(redis, "d:1")
        assert await looks.one_more() == ["vllm-d:1"]
        monkeypatch.setattr(redis_discovery, "MAX_PAGES", 2)
        redis.do("EVAL", "for i = 1, 10000 do redis.call('SADD', KEYS[1], i) end", "1", NAMED)
        redis.do("DEL", f"{KEY}d:1")
        looks.now_s += 2 * GRACE_S
        assert await looks.one_more() == ["vllm-d:1"]


def fill(redis: RedisServer, prefix: str, num_keys: int, named: str = "") -> None:
    """With servers, each under a key of its own; `named`: the set that gets their names."""
    program = """
    for i = 1, ARGV[2] do
      redis.call('SET', ARGV[1] .. i, 'http://h' .. i .. ':1')
      if ARGV[3] ~= '' then redis.call('SADD', ARGV[3], i) end
    end
    """
    redis.do("EVAL", program, "0", prefix, str(num_keys), named)
