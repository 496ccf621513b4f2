"""The wire over a socket, to a server that answers byte by byte as the test says."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
import trustme

from cluster.errors import (
    ConfigError,
    InternalError,
    InvalidRequest,
    NotReady,
    WorkerLost,
    WorkerSilent,
)
from router.vllm import http_wire
from router.vllm.event_lines import DONE
from router.vllm.http_wire import HttpWire, wires_with_key_of
from router.vllm.server import NUMBERS_TIMEOUT_S
from router.vllm.server_address import VllmAddress
from router.vllm.wire import check
from tests.router.vllm import recorded

Writes = Callable[[asyncio.StreamWriter], Coroutine[Any, Any, None]]


class Raw:
    """`asked` are requests as they came; `gone` is set when a client has broken off."""

    def __init__(self, writes: Writes) -> None:
        self.writes = writes
        self.asked: list[bytes] = []
        self.gone = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            self.asked.append(await reader.readuntil(b"\r\n\r\n"))
            await self.writes(writer)
            while await reader.read(65_536):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has broken off, with something unread or unsent
        self.gone.set()

    async def left(self) -> None:
        """Returns once the client has broken off."""
        async with asyncio.timeout(30):
            await self.gone.wait()

    async def close(self) -> None:
        for writer in self._open:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@asynccontextmanager
async def wired(
    writes: Writes,
    key: str | None = None,
    scheme: str = "http",
    *,
    shown: ssl.SSLContext | None = None,
    trusted: trustme.CA | None = None,
) -> AsyncIterator[tuple[HttpWire, Raw]]:
    """`shown`: the server's certificate; without one it speaks no TLS."""
    raw = Raw(writes)
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0, ssl=shown)
    port = server.sockets[0].getsockname()[1]
    tls = ssl.create_default_context() if scheme == "https" else None
    if tls is not None and trusted is not None:
        trusted.configure_trust(tls)
    wire = HttpWire(f"{scheme}://127.0.0.1:{port}", "vllm-x", api_key=key, tls=tls)
    try:
        yield wire, raw
    finally:
        await wire.close()
        server.close()
        await server.wait_closed()
        await raw.close()


def answering(status: str, body: bytes) -> Writes:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n" % (status.encode(), len(body)))
        writer.write(body)

    return write


def streaming(body: bytes, *, is_whole: bool = True, is_open: bool = False) -> Writes:
    """`is_open`: there is more to come."""

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(b"%x\r\n%s\r\n" % (len(body), body))
        if is_open:
            return
        if is_whole:
            writer.write(b"0\r\n\r\n")
        else:
            writer.write_eof()

    return write


async def events_of(wire: HttpWire) -> list[bytes]:
    async with aclosing(wire.stream("/v1/completions", {"a": 1})) as pieces:
        return [data async for events in pieces for data in events]


async def test_a_stream_comes_as_it_was_recorded() -> None:
    async with wired(streaming(recorded.STREAM), key="secret") as (wire, raw):
        events = await events_of(wire)
        assert len(events) == 4 and events[-1] == DONE
        assert raw.asked[0].startswith(b"POST /v1/completions HTTP/1.1")
        assert b"authorization: bearer secret" in raw.asked[0].lower()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("400 Bad Request", InvalidRequest),
        ("401 Unauthorized", InternalError),
        ("404 Not Found", WorkerLost),
        ("429 Too Many Requests", NotReady),
        ("500 Internal Server Error", WorkerLost),
        ("503 Service Unavailable", NotReady),
    ],
)
async def test_a_status_is_an_error_of_ours_with_vllms_words(
    status: str, error: type[Exception]
) -> None:
    async with wired(answering(status, recorded.REFUSED)) as (wire, _):
        with pytest.raises(error, match="max_tokens=3000 cannot be greater"):
            await events_of(wire)


async def test_an_answer_that_breaks_off_is_a_worker_that_is_lost() -> None:
    async with wired(streaming(recorded.STREAM[:200], is_whole=False)) as (wire, _):
        with pytest.raises(WorkerLost, match="broke off"):
            await events_of(wire)


async def test_a_server_that_is_not_there_is_a_worker_that_is_lost() -> None:
    wire = HttpWire("http://127.0.0.1:1", "vllm-x")
    with pytest.raises(WorkerLost, match="cannot be reached"):
        await wire.get("/health", timeout_s=5.0)
    await wire.close()


async def nothing(writer: asyncio.StreamWriter) -> None:
    pass


async def test_a_server_that_has_no_time_for_tls_is_silent_as_one_that_has_none_for_an_answer() -> (
    None
):
    for scheme in ("http", "https"):
        async with wired(nothing, scheme=scheme) as (wire, raw):
            with pytest.raises(WorkerSilent, match="no whole answer"):
                await wire.get("/health", timeout_s=NUMBERS_TIMEOUT_S)
            await raw.left()


async def test_a_request_waits_for_tls_no_longer_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_wire, "HANDSHAKE_TIMEOUT_S", 0.2)
    async with wired(nothing, scheme="https") as (wire, raw), asyncio.timeout(30):
        with pytest.raises(WorkerSilent, match="began no TLS"):
            await wire.post("/v1/completions", {}, timeout_s=None)
        await raw.left()


def served_by(authority: trustme.CA) -> ssl.SSLContext:
    shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(shown)
    return shown


@pytest.mark.parametrize(
    ("scheme", "step"),
    [
        ("http", "connection.connect_tcp.complete"),
        ("https", "connection.connect_tcp.complete"),
        ("https", "connection.start_tls.complete"),
    ],
)
async def test_a_request_that_leaves_between_two_steps_of_its_connection_leaves_no_socket(
    scheme: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hear = http_wire._Connecting.hear

    async def leave(self: http_wire._Connecting, event: str, info: dict[str, Any]) -> None:
        await hear(self, event, info)
        task = asyncio.current_task()
        if event == step and task is not None:
            task.cancel()

    monkeypatch.setattr(http_wire._Connecting, "hear", leave)
    authority = trustme.CA()
    shown = served_by(authority) if step.startswith("connection.start_tls") else None
    async with wired(nothing, scheme=scheme, shown=shown, trusted=authority) as (wire, raw):
        asked = asyncio.create_task(wire.get("/health", timeout_s=30.0))
        await asyncio.wait([asked])
        assert asked.cancelled()
        await raw.left()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_connection_is_kept_after_an_answer_whatever_its_steps_are_called(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hear = http_wire._Connecting.hear

    async def renamed(self: http_wire._Connecting, event: str, info: dict[str, Any]) -> None:
        known = event.startswith("connection.connect_tcp.")
        await hear(self, event if known else f"renamed.{event}", info)

    monkeypatch.setattr(http_wire._Connecting, "hear", renamed)
    is_begun = asyncio.Event()
    first, _, rest = recorded.STREAM.partition(b"\n\n")

    async def in_two(writer: asyncio.StreamWriter) -> None:
        await streaming(first + b"\n\n", is_open=True)(writer)
        await is_begun.wait()
        writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(rest), rest))

    authority = trustme.CA()
    shown = served_by(authority) if scheme == "https" else None
    async with wired(in_two, scheme=scheme, shown=shown, trusted=authority) as (wire, raw):
        async with aclosing(wire.stream("/v1/completions", {})) as pieces:
            assert len(await anext(pieces)) == 1
            is_begun.set()
            events = [data async for each in pieces for data in each]
        assert events[-1] == DONE and not raw.gone.is_set()


async def test_over_https_the_servers_certificate_counts() -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    shown = served_by(authority)
    answers = answering("200 OK", recorded.VERSION)
    async with wired(answers, scheme="https", shown=shown, trusted=authority) as (wire, _):
        assert (await wire.get("/version", timeout_s=30.0)).body == recorded.VERSION
    async with wired(answers, scheme="https", shown=shown, trusted=stranger) as (wire, _):
        with pytest.raises(WorkerLost, match="cannot be reached") as caught:
            await wire.get("/version", timeout_s=30.0)
        assert not isinstance(caught.value, WorkerSilent)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_host_that_is_off_is_lost_before_a_look_would_call_it_silent(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    async def never(*_args: object, **_named: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("anyio.connect_tcp", never)
    async with wired(nothing, scheme=scheme) as (wire, _):
        with pytest.raises(WorkerLost, match="takes no connection") as caught:
            await wire.get("/health", timeout_s=NUMBERS_TIMEOUT_S)
    assert not isinstance(caught.value, WorkerSilent)


async def test_of_our_own_standing_no_host_is_called_off(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = anyio.connect_tcp

    async def stands(*args: Any, **named: Any) -> Any:
        time.sleep(http_wire.CONNECT_TIMEOUT_S + 0.5)  # the whole loop, not this request
        return await connect(*args, **named)

    monkeypatch.setattr("anyio.connect_tcp", stands)
    async with wired(answering("200 OK", recorded.VERSION)) as (wire, _):
        assert (await wire.get("/version", timeout_s=30.0)).body == recorded.VERSION


async def test_a_server_that_does_not_answer_is_given_up() -> None:
    async with wired(nothing) as (wire, _):
        with pytest.raises(WorkerLost):
            await wire.get("/metrics", timeout_s=0.05)


async def test_a_server_that_answers_by_drops_is_given_up_by_the_time_of_the_whole() -> None:
    async def drops(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with wired(drops) as (wire, _), asyncio.timeout(30):
        with pytest.raises(WorkerLost, match="no whole answer"):
            await wire.get("/metrics", timeout_s=0.2)


async def test_answers_are_asked_for_unpacked() -> None:
    async with wired(answering("200 OK", b"{}")) as (wire, raw):
        await wire.get("/version", timeout_s=30.0)
        assert b"accept-encoding: identity\r\n" in raw.asked[0].lower()


async def test_headers_of_a_request_go_along_with_the_wires_own() -> None:
    async with wired(answering("200 OK", b"{}"), "secret") as (wire, raw):
        await wire.post("/v1/completions", {}, timeout_s=30.0, headers={"traceparent": "00-x"})
        asked = raw.asked[0].lower()
    assert b"traceparent: 00-x\r\n" in asked and b"authorization: bearer secret\r\n" in asked


def test_https_without_tls_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs TLS"):
        HttpWire("https://a:1", "vllm-x")


def test_a_router_without_vllm_does_not_read_httpx() -> None:
    said = "import sys, router.control.plane; sys.exit('httpx' in sys.modules)"
    subprocess.run([sys.executable, "-c", said], check=True, timeout=120)


async def test_whoever_goes_breaks_the_connection() -> None:
    first = recorded.STREAM.partition(b"\n\n")[0] + b"\n\n"
    async with wired(streaming(first, is_whole=False)) as (wire, raw):
        async with aclosing(wire.stream("/v1/completions", {})) as pieces:
            assert len(await anext(pieces)) == 1
        await raw.left()


async def test_a_good_answer_is_handed_on_whole() -> None:
    async with wired(answering("200 OK", recorded.VERSION)) as (wire, _):
        answer = check(await wire.get("/version", timeout_s=30.0), "vllm-x")
        assert answer.body == recorded.VERSION


async def test_a_key_is_read_from_its_file_and_a_file_without_one_is_refused(
    tmp_path: Path,
) -> None:
    file = tmp_path / "key"
    for unfit in (None, "", "two\nlines"):
        if unfit is not None:
            file.write_text(unfit)
        with pytest.raises(ConfigError) as caught:
            wires_with_key_of(str(file))
        assert caught.value.param == "vllm_key_file"
    file.write_text("secret\n")
    await wires_with_key_of(str(file))(VllmAddress(url="http://a:1")).close()
