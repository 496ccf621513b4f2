"""Handshakes of TLS count as connections of the port do."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from cluster.tls.files import CertificateFiles
from cluster.tls.watched import WatchedCertificates
from router.api.http import server as server_module
from router.api.http.asgi import Receive, Scope, Send
from router.api.http.server import HttpServer
from tests.cluster.tls.authority import Authority
from tests.router.front_fakes import small_limits

NAME = "127.0.0.1"
LIMITS = small_limits(max_connections=3, reserved_connections=1)
DEADLINE_S = 60
REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"here"})


def silent(server: HttpServer) -> socket.socket:
    """A client that says nothing."""
    return socket.create_connection((NAME, server.port))


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.001)


async def asked(server: HttpServer, trusting: ssl.SSLContext) -> bytes:
    """Raises OSError where no connection is made."""
    reader, writer = await asyncio.open_connection(NAME, server.port, ssl=trusting)
    writer.write(REQUEST)
    came = await reader.read()
    writer.close()
    return came


@asynccontextmanager
async def running(own: Path) -> AsyncIterator[HttpServer]:
    certificates = WatchedCertificates(CertificateFiles(own / "cert.pem", own / "key.pem"))
    server = HttpServer(answer, NAME, 0, LIMITS, on_loss=print, tls=certificates)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def is_ended(client: socket.socket) -> bool:
    client.setblocking(False)
    return await asyncio.get_running_loop().sock_recv(client, 1) == b""


async def a_crowd_leaves(own: Path) -> None:
    trusting = ssl.create_default_context(cafile=own / "ca.pem")
    async with running(own) as server:
        with ExitStack() as crowd:
            for _ in range(4):
                crowd.enter_context(silent(server))
            await until(lambda: server.num_handshakes == 4)
            for _ in range(3):  # and the listener goes on accepting
                with silent(server) as late:
                    assert await is_ended(late)
            with pytest.raises(OSError):
                await asked(server, trusting)
            assert server.num_handshakes == 4
        await until(lambda: server.num_handshakes == 0)
        assert b"here" in await asked(server, trusting)
        assert server.num_handshakes == 0


async def a_crowd_is_late(own: Path) -> None:
    async with running(own) as server:
        with ExitStack() as crowd:
            for each in [crowd.enter_context(silent(server)) for _ in range(4)]:
                assert await is_ended(each)
            await until(lambda: server.num_handshakes == 0)


def run(scene: Coroutine[None, None, None]) -> None:
    """On the loop of real routers."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scene, DEADLINE_S))


def test_silent_handshakes_take_no_more_than_the_port_s_places_and_give_them_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "HANDSHAKE_TIMEOUT_S", DEADLINE_S)
    run(a_crowd_leaves(Authority().fill(tmp_path, NAME)))


def test_handshakes_that_are_too_late_give_their_places_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "HANDSHAKE_TIMEOUT_S", 0.2)
    run(a_crowd_is_late(Authority().fill(tmp_path, NAME)))
