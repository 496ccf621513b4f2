"""Relays connections to a Service's address to the pods behind it, one after the other.

A connection that is there stays with its pod, also when this one leaves. A Service without a ready
pod closes what comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import dataclass

from cluster.process.background import Background, cancel
from tests.mini_cluster.history import Object
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.services import slices_of

_CHUNK = 1 << 16
_CONNECT_S = 5.0


@dataclass(frozen=True, slots=True)
class Door:
    """A port of a Service."""

    namespace: str
    service: str
    address: str
    port: int
    name: str


class ServiceProxy:
    """Owns a listener for each port of each Service, and what goes through them."""

    def __init__(self, store: ObjectStore, tasks: Background) -> None:
        self._store = store
        self._tasks = tasks
        self._servers: dict[Door, asyncio.Server] = {}
        self._turn = itertools.count()

    async def run(self) -> None:
        """For ever: opens and closes doors as Services come and go."""
        async for event in self._store.watch("services"):
            if event.type == "BOOKMARK":
                continue
            doors = {door for found in self._store.select("services") for door in _doors(found)}
            for door in self._servers.keys() - doors:
                self._servers.pop(door).close()
            for door in doors - self._servers.keys():
                self._servers[door] = await self._open(door)

    async def close(self) -> None:
        for server in self._servers.values():
            server.close()

    async def _open(self, door: Door) -> asyncio.Server:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._tasks.once("relay", self._relay(door, reader, writer))

        return await asyncio.start_server(accept, door.address, door.port)

    async def _relay(
        self, door: Door, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.closing(writer):
            for address, port in self._behind(door):
                with contextlib.suppress(OSError):  # it has gone: the next
                    async with asyncio.timeout(_CONNECT_S):
                        onward = await asyncio.open_connection(address, port)
                    break
            else:
                return
            with contextlib.closing(onward[1]):
                await _both_ways((reader, writer), onward)

    def _behind(self, door: Door) -> list[tuple[str, int]]:
        """Ready pods, another one first each time."""
        found = [
            (endpoint["addresses"][0], port["port"])
            for listed in slices_of(self._store, door.namespace, door.service)
            for port in listed["ports"]
            if port["name"] == door.name
            for endpoint in listed["endpoints"]
            if endpoint["conditions"]["ready"]
        ]
        turn = next(self._turn) % max(1, len(found))
        return found[turn:] + found[:turn]


def _doors(service: Object) -> list[Door]:
    metadata, address = service["metadata"], service["spec"].get("clusterIP", "")
    if address in ("", "None"):
        return []
    return [
        Door(metadata["namespace"], metadata["name"], address, port["port"], port.get("name", ""))
        for port in service["spec"].get("ports", [])
    ]


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _both_ways(one: Stream, other: Stream) -> None:
    """Until either side has closed both of its directions, or is lost."""
    ways = [
        asyncio.create_task(_one_way(one[0], other[1])),
        asyncio.create_task(_one_way(other[0], one[1])),
    ]
    try:
        await asyncio.wait(ways)
    finally:
        await cancel(ways)


async def _one_way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()
        return
    writer.transport.abort()
