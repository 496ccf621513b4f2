"""The bytes of all bodies under way have one bound, on every door."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from typing import cast

import grpc
import httpx
import pytest

from cluster.errors import NotReady, SlowRequest
from router.front.body_account import PROGRESS_BYTES, STANDSTILL_S, BodyAccount
from router.front.text_work import LARGE_BODY_BYTES
from tests.router.front_fakes import MODEL, running_front, says, until
from tests.router.grpc_front.test_grpc_inference import failure_of, running_grpc, text_request

LARGE = 100_000
HEAD = (
    "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    f"content-length: {LARGE + 10}\r\n\r\n"
).encode()


def read_all(connection: socket.socket) -> bytes:
    """Until the other side closes."""
    return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_what_does_not_fit_takes_nothing_and_what_is_let_go_makes_room() -> None:
    account = BodyAccount(LARGE)
    with account.open() as first, account.open() as second:
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
        bodies = [open_.enter_context(account.open()) for _ in range(3)]
        for body in bodies:
            open_.enter_context(body.arriving(cast(asyncio.Timeout, Limit())))
            body.grow_to(LARGE - PROGRESS_BYTES)
        now_s = 1.0
        bodies[0].grow_to(LARGE)
        bodies[1].grow_to(LARGE - PROGRESS_BYTES + 1)
        bodies[2].grow_to(LARGE)
        newcomer = open_.enter_context(account.open())
        newcomer.grow_to(LARGE)
        with pytest.raises(SlowRequest):
            bodies[1].grow_to(LARGE)
        with pytest.raises(NotReady):
            newcomer.grow_to(2 * LARGE)
    assert account.num_bytes == 0


async def test_a_message_over_grpc_counts_in_the_same_account() -> None:
    async with running_grpc(says("ok"), bodies=BodyAccount(LARGE_BODY_BYTES)) as front:
        code, reason, _ = await failure_of(front.stub.Generate(text_request("x" * 40_000)))
    assert (code, reason) == (grpc.StatusCode.UNAVAILABLE, "not_ready")
