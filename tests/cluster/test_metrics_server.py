"""The page of a process's metrics: it answers from a thread, whose end is noticed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter

from cluster import metrics_server
from cluster.errors import ConfigError
from cluster.metrics_server import MAX_READERS, MetricsServer
from cluster.process.background import Background, cancel, nothing_needed


@pytest.fixture
async def page() -> AsyncIterator[MetricsServer]:
    """Served by who keeps it alive."""
    registry = CollectorRegistry()
    Counter("requests", "of a test", registry=registry).inc()
    page = MetricsServer("127.0.0.1", 0, registry)
    background = Background(nothing_needed)
    background.keep("metrics", page.serve)
    yield page
    await background.close()
    page.close()


async def read(page: MetricsServer) -> str:
    async with httpx.AsyncClient(timeout=30) as client:
        return (await client.get(f"http://127.0.0.1:{page.port}/metrics")).text


def failing_once(ended: asyncio.Event) -> Callable[[], None]:
    """What the server's thread calls at each of its turns."""
    loop = asyncio.get_running_loop()

    def fails() -> None:
        if not ended.is_set():
            loop.call_soon_threadsafe(ended.set)
            raise MemoryError("no room for a thread")

    return fails


async def test_the_page_shows_what_was_counted(page: MetricsServer) -> None:
    assert "requests_total 1.0" in await read(page)


async def test_a_page_whose_thread_has_ended_is_told_of_and_served_again(
    page: MetricsServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = asyncio.Event()
    monkeypatch.setattr(page._server, "service_actions", failing_once(ended))
    await ended.wait()
    assert "requests_total 1.0" in await read(page)
    said = "".join(capsys.readouterr())
    assert "it is started again" in said and "no room for a thread" in said


async def test_who_stops_serving_at_once_leaves_no_thread_and_the_port_is_free_again() -> None:
    page = MetricsServer("127.0.0.1", 0, CollectorRegistry())
    serving = asyncio.create_task(page.serve())
    await asyncio.sleep(0)
    await cancel([serving])
    page.close()
    MetricsServer("127.0.0.1", page.port, CollectorRegistry()).close()


async def test_a_port_that_is_taken_is_refused_with_what_to_do(page: MetricsServer) -> None:
    with pytest.raises(ConfigError, match="choose a free port"):
        MetricsServer("127.0.0.1", page.port, CollectorRegistry())


async def test_silent_readers_have_a_bound_and_keep_nobody_from_the_page(
    page: MetricsServer,
) -> None:
    before = threading.active_count()
    silent = [await asyncio.open_connection("127.0.0.1", page.port) for _ in range(3 * MAX_READERS)]
    async with asyncio.timeout(60):
        assert "requests_total 1.0" in await read(page)
        for reader, _ in silent[: 2 * MAX_READERS]:
            assert await reader.read() == b""
        while threading.active_count() > before + MAX_READERS + 1:
            await asyncio.sleep(0.01)
    for _, writer in silent:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_reader_that_says_nothing_is_cut_after_a_while(
    page: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server._SilentHandler, "timeout", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", page.port)
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


@pytest.fixture
async def probed() -> AsyncIterator[tuple[MetricsServer, list[str | None]]]:
    """A page with a probe that says what stands in the list."""
    says: list[str | None] = [None]
    page = MetricsServer("127.0.0.1", 0, CollectorRegistry(), {"/ready": lambda: says[0]})
    background = Background(nothing_needed)
    background.keep("metrics", page.serve)
    yield page, says
    await background.close()
    page.close()


async def test_a_probe_says_ok_or_why_not(
    probed: tuple[MetricsServer, list[str | None]],
) -> None:
    page, says = probed
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{page.port}", timeout=30) as client:
        answer = await client.get("/ready")
        assert (answer.status_code, answer.text) == (200, "ok\n")
        says[0] = "still loading"
        answer = await client.get("/ready")
        assert (answer.status_code, answer.text) == (503, "still loading\n")
        assert (await client.get("/metrics")).status_code == 200
