"""The bytes of all bodies under way have one bound, on every door."""

from __future__ import annotations

import asyncio
import socket

import grpc
import httpx
import pytest

from cluster.errors import NotReady
from router.front.body_account import BodyAccount
from router.front.text_work import LARGE_BODY_BYTES
from tests.router.front_fakes import MODEL, running_front, says, until
from tests.router.grpc_front.test_grpc_inference import failure_of, running_grpc, text_request

LARGE = 100_000
HEAD = (
    "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    f"content-length: {LARGE + 10}\r\n\r\n"
).encode()


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


async def test_bodies_that_never_end_keep_out_large_ones_and_no_small_one() -> None:
    bodies = BodyAccount(LARGE)
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


async def test_a_message_over_grpc_counts_in_the_same_account() -> None:
    async with running_grpc(says("ok"), bodies=BodyAccount(LARGE_BODY_BYTES)) as front:
        code, reason, _ = await failure_of(front.stub.Generate(text_request("x" * 40_000)))
    assert (code, reason) == (grpc.StatusCode.UNAVAILABLE, "not_ready")
