"""The bytes of all bodies under way have one bound, on every door."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import cast

import grpc
import httpx
import pytest

from cluster.errors import NotReady, SlowRequest
from router.front.body_account import PROGRESS_BYTES, STANDSTILL_S, BodyAccount
from router.front.caller import Caller
from router.front.text_work import LARGE_BODY_BYTES
from tests.router.front_fakes import MODEL, running_front, says, until
from tests.router.grpc_front.test_grpc_inference import failure_of, running_grpc, text_request

LARGE = 100_000
MIB = 1024 * 1024
HEAD = (
    "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    f"content-length: {LARGE + 10}\r\n\r\n"
).encode()


def sender(name: str) -> Callable[[], Caller]:
    """At an address of that name."""
    return lambda: Caller(name, name)


def read_all(connection: socket.socket) -> bytes:
    """Until the other side closes."""
    return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_what_does_not_fit_takes_nothing_and_what_is_let_go_makes_room() -> None:
    account = BodyAccount(LARGE)
    with account.open(sender("a")) as first, account.open(sender("b")) as second:
        first.grow_to(60_000)
        first.grow_to(LARGE)
        with pytest.raises(NotReady):
            second.grow_to(LARGE_BODY_BYTES + 1)
        second.grow_to(LARGE_BODY_BYTES)  # small ones do not count
        first.close()
        second.grow_to(LARGE)
    assert account.num_bytes == 0


async def test_bodies_that_move_keep_out_large_ones_and_no_small_one() -> None:
    bodies = BodyAccount(LARGE, clock=lambda: 0.0)
    async with running_front(says("ok"), bodies=bodies) as front, httpx.AsyncClient() as client:
        with socket.create_connection(("127.0.0.1", front.port)) as unfinished:
            await asyncio.to_thread(unfinished.sendall, HEAD + b" " * LARGE)
            await until(lambda: bodies.num_bytes == LARGE, "it has arrived, but for its end")
            body = {"model": MODEL, "prompt": "Hi", "max_tokens": 2}
            url = f"{front.url}/v1/completions"
            assert (await client.post(url, json=body)).status_code == 200
            json = {"content-type": "application/json"}
            padded = httpx.Request("POST", url, json=body).content + b" " * LARGE_BODY_BYTES
            refused = await client.post(url, content=padded, headers=json)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        await until(lambda: bodies.num_bytes == 0, "who hangs up is forgotten")
        assert (await client.post(url, content=padded, headers=json)).status_code == 200
        assert bodies.num_bytes == 0


async def test_a_body_that_stands_still_gives_way_to_one_that_comes() -> None:
    now_s = 0.0
    bodies = BodyAccount(LARGE, clock=lambda: now_s)
    async with running_front(says("ok"), bodies=bodies) as front, httpx.AsyncClient() as client:
        with socket.create_connection(("127.0.0.1", front.port)) as unfinished:
            await asyncio.to_thread(unfinished.sendall, HEAD + b" " * LARGE)
            await until(lambda: bodies.num_bytes == LARGE, "it has arrived, but for its end")
            now_s = 2 * STANDSTILL_S
            body = {"model": MODEL, "prompt": "Hi", "max_tokens": 2}
            url = f"{front.url}/v1/completions"
            padded = httpx.Request("POST", url, json=body).content + b" " * LARGE_BODY_BYTES
            json = {"content-type": "application/json"}
            assert (await client.post(url, content=padded, headers=json)).status_code == 200
            unfinished.settimeout(30.0)
            told = await asyncio.to_thread(read_all, unfinished)
            assert told.startswith(b"HTTP/1.1 408 ")
            assert b"stood still" in told
        await until(lambda: bodies.num_bytes == 0, "nothing is held")


class Limit:
    """Stands for the timeout around the reading of a body."""

    when: float | None = None

    def expired(self) -> bool:
        return False

    def reschedule(self, when: float) -> None:
        self.when = when


async def test_the_longest_standing_body_is_dropped_and_a_trickle_is_no_progress() -> None:
    now_s = 0.0
    account = BodyAccount(3 * LARGE, clock=lambda: now_s)
    with ExitStack() as open_:
        bodies = [open_.enter_context(account.open(sender(name))) for name in "abc"]
        for body in bodies:
            open_.enter_context(body.arriving(cast(asyncio.Timeout, Limit())))
            body.grow_to(LARGE - PROGRESS_BYTES)
        now_s = 1.0
        bodies[0].grow_to(LARGE)
        bodies[1].grow_to(LARGE - PROGRESS_BYTES + 1)
        bodies[2].grow_to(LARGE)
        newcomer = open_.enter_context(account.open(sender("d")))
        newcomer.grow_to(LARGE)
        with pytest.raises(SlowRequest):
            bodies[1].grow_to(LARGE)
        with pytest.raises(NotReady):
            newcomer.grow_to(2 * LARGE)
    assert account.num_bytes == 0


def test_who_fills_the_account_from_one_address_leaves_room_for_others() -> None:
    account = BodyAccount(256 * MIB)
    with ExitStack() as open_:
        with pytest.raises(NotReady, match="from this address"):
            for _ in range(33):
                open_.enter_context(account.open(sender("a"))).grow_to(7 * MIB + MIB // 2)
        assert 180 * MIB < account.num_bytes <= 192 * MIB
        open_.enter_context(account.open(sender("b"))).grow_to(30 * MIB)
        open_.enter_context(account.open(sender("c"))).grow_to(30 * MIB)
    assert account.num_bytes == 0


def test_an_addresss_only_body_may_have_all_that_is_free() -> None:
    account = BodyAccount(10 * MIB)
    with account.open(sender("a")) as first, account.open(sender("b")) as second:
        first.grow_to(6 * MIB)
        second.grow_to(4 * MIB)
        with pytest.raises(NotReady):
            second.grow_to(4 * MIB + 1)
        first.close()
        second.grow_to(10 * MIB)


class Crowd:
    """Bodies that arrive at the same time, each from an address of its own."""

    def __init__(self, account: BodyAccount, open_: ExitStack, count: int) -> None:
        self.bodies = [open_.enter_context(account.open(sender(f"a{n}"))) for n in range(count)]
        self.num_dropped = 0
        for body in self.bodies:
            open_.enter_context(body.arriving(cast(asyncio.Timeout, Limit())))

    def grow_to(self, num_bytes: int) -> None:
        for body in list(self.bodies):
            try:
                body.grow_to(num_bytes)
            except SlowRequest:
                self.bodies.remove(body)
                self.num_dropped += 1


async def test_large_bodies_that_creep_give_way_to_others() -> None:
    """As much as was progress before, in a little less time: they would come in two minutes."""
    now_s = 0.0
    account = BodyAccount(256 * MIB, clock=lambda: now_s)
    with ExitStack() as open_:
        crowd = Crowd(account, open_, 33)
        for step in range(3):
            crowd.grow_to(7 * MIB + step * PROGRESS_BYTES)
            now_s += 0.45
        open_.enter_context(account.open(sender("b"))).grow_to(30 * MIB)
        crowd.grow_to(7 * MIB + 3 * PROGRESS_BYTES)
        assert 0 < crowd.num_dropped <= 3, "no more than it takes"
    assert account.num_bytes == 0


async def test_what_comes_in_its_time_is_not_dropped_for_others() -> None:
    now_s = 0.0
    account = BodyAccount(256 * MIB, within_s=10.0, clock=lambda: now_s)
    with ExitStack() as open_:
        crowd = Crowd(account, open_, 33)
        for step in range(1, 100):
            crowd.grow_to(step * 7 * MIB // 100)
            now_s += 0.1
            with account.open(sender("b")) as other, suppress(NotReady):
                other.grow_to(200 * MIB)
        assert crowd.num_dropped == 0


async def test_nobody_is_dropped_for_an_address_that_has_more() -> None:
    now_s = 0.0
    account = BodyAccount(4 * MIB, clock=lambda: now_s)
    with ExitStack() as open_:
        crowd = Crowd(account, open_, 1)
        crowd.grow_to(MIB)
        now_s = 2 * STANDSTILL_S
        greedy = open_.enter_context(account.open(sender("b")))
        greedy.grow_to(3 * MIB)
        with pytest.raises(NotReady):
            greedy.grow_to(4 * MIB)
        crowd.grow_to(MIB)
        assert crowd.num_dropped == 0


async def test_bodies_over_http_are_counted_by_the_address_that_they_come_from() -> None:
    bodies = BodyAccount(4 * LARGE, clock=lambda: 0.0)
    async with running_front(says("ok"), bodies=bodies) as front:
        with ExitStack() as open_:
            for count in range(1, 4):
                unfinished = open_.enter_context(
                    socket.create_connection(("127.0.0.1", front.port))
                )
                await asyncio.to_thread(unfinished.sendall, HEAD + b" " * LARGE)
                await until(lambda n=count: bodies.num_bytes == n * LARGE, "it has arrived")
            assert await status_of_large(front.url, "127.0.0.1") == 503
            assert await status_of_large(front.url, "127.0.0.2") == 200


async def status_of_large(url: str, address: str) -> int:
    """Of a large body from there."""
    transport = httpx.AsyncHTTPTransport(local_address=address)
    async with httpx.AsyncClient(transport=transport) as client:
        body = {"model": MODEL, "prompt": "Hi", "max_tokens": 2}
        path, json = f"{url}/v1/completions", {"content-type": "application/json"}
        padded = httpx.Request("POST", path, json=body).content + b" " * (LARGE // 2)
        return (await client.post(path, content=padded, headers=json)).status_code


async def test_a_message_over_grpc_counts_in_the_same_account() -> None:
    async with running_grpc(says("ok"), bodies=BodyAccount(LARGE_BODY_BYTES)) as front:
        code, reason, _ = await failure_of(front.stub.Generate(text_request("x" * 40_000)))
    assert (code, reason) == (grpc.StatusCode.UNAVAILABLE, "not_ready")
