"""The example that reads a stream over several connections does."""

from __future__ import annotations

import asyncio

import pytest

from cluster.process.background import cancel
from examples import resuming_client
from tests.router.api.told_streams import ASKED, TEXT, Told, read, says_on
from tests.router.front_fakes import running_front


async def cutting_proxy(port: int, after_bytes: int) -> asyncio.Server:
    """Breaks every connection when it has passed on so many bytes of its answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
        asking = asyncio.create_task(pass_on(reader, up_writer, None))
        await pass_on(up_reader, writer, after_bytes)
        await cancel([asking])
        up_writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


async def pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, up_to: int | None
) -> None:
    passed = 0
    while (data := await reader.read(100)) and (up_to is None or passed < up_to):
        writer.write(data)
        passed += len(data)
    writer.close()


async def test_the_example_reads_a_stream_over_as_many_connections_as_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resuming_client, "PAUSE_S", 0.0)
    async with running_front(says_on(TEXT), keeps_streams=True) as front:
        whole, told = Told(), Told()
        path, asked = ASKED["a chat"]
        await read(front, whole, path, asked | {"stream": True, "resumable": True})
        proxy = await cutting_proxy(front.port, 1500)
        urls = [f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"]
        chunks = await asyncio.to_thread(lambda: [*resuming_client.events(urls, path, asked)])
        for chunk in chunks:
            told.take("", chunk)
        assert told.everything() == whole.everything()
        assert len(front.source.requests) >= 2
        proxy.close()
