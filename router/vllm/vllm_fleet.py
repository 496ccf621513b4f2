"""All vLLM servers of a router: found, looked at, and linked once they have joined its fleet.

discovery --new--> a wire and a watch --joined--> a link (decode servers)
        '--not listed: nothing new--> its requests have ended, or nobody answers there:
            watch ended, member removed, wire closed
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from cluster.identity import WorkerKey
from cluster.logs import get_logger
from cluster.membership.member import Member
from cluster.membership.store import MembershipStore
from cluster.process.background import Background, cancel
from cluster.world import World
from router.engine_events.source import EngineEventSource
from router.fleet.unread import UnreadBytes
from router.fleet.worker_link import LinkEvents, WorkerLink
from router.vllm.discovery import Discovery
from router.vllm.introduction import FrontedModel
from router.vllm.link import VllmLink
from router.vllm.server import VllmServer
from router.vllm.server_address import VllmAddress
from router.vllm.server_watch import ServerWatch
from router.vllm.servers import VllmServers
from router.vllm.wire import VllmWire

FOLLOW_AGAIN_S = 5.0
_log = get_logger("vllm")

OpenWire = Callable[[VllmAddress], VllmWire]


class VllmFleet:
    """A WorkerAdapter. All calls from the event loop; `start` and `close` once."""

    def __init__(
        self,
        discovery: Discovery,
        open_wire: OpenWire,
        model: FrontedModel,
        world: World,
        background: Background,
        *,
        interval_s: float,
        on_late_reads: Callable[[int], None] = lambda num: None,
        on_gone: Callable[[str], None] = lambda worker_id: None,
    ) -> None:
        """`interval_s`: from look to look. Tasks are `background`'s. `on_gone`: the worker id of
        one that is not listed any more, and has left: another may have its place one day."""
        self._discovery = discovery
        self._open_wire = open_wire
        self._model = model
        self._world = world
        self._background = background
        self._interval_s = interval_s
        self._on_late_reads = on_late_reads
        self._on_gone = on_gone
        self._servers = VllmServers()
        self._links: dict[WorkerKey, VllmLink] = {}
        self._following: asyncio.Task[None] | None = None
        self._watches: dict[VllmAddress, tuple[VllmServer, asyncio.Task[None]]] = {}

    def link(self, member: Member, events: LinkEvents, unread: UnreadBytes) -> WorkerLink | None:
        """See WorkerAdapter."""
        server = self._servers.find(member.key)
        if server is None:
            return None
        link = VllmLink(server, self._servers, self._world, events, unread)
        for key in [key for key in self._links if key.worker_id == member.worker_id]:
            del self._links[key]  # a process before this one
        self._links[member.key] = link
        return link

    def server_of(self, key: WorkerKey) -> VllmServer | None:
        """Where that process answers; for checks."""
        return self._servers.find(key)

    @property
    def num_known(self) -> int:
        """Servers and links that are kept; for checks."""
        return len(self._servers) + len(self._links) + len(self._watches)

    def events_of(self, member: Member) -> EngineEventSource | None:
        """See WorkerAdapter."""
        server = self._servers.find(member.key)
        return None if server is None else server.events

    def start(self, store: MembershipStore) -> None:
        """Begins to look for servers, which join the store by themselves."""
        work = self._followed(store)
        self._following = self._background.once("vLLM discovery", work)

    async def close(self) -> None:
        """Breaks every connection; after the links are closed."""
        if self._following is not None:
            await cancel([self._following])
        await cancel([task for _, task in self._watches.values()])
        for server, _ in self._watches.values():
            await server.wire.close()
        self._watches.clear()

    async def _followed(self, store: MembershipStore) -> None:
        """Of a list that cannot change nothing is left to do; a reader that fails is begun anew."""
        while True:
            try:
                return await self._follow(store)
            except Exception:
                _log.exception("vLLM servers could not be followed; it is tried again")
                await self._world.sleep(FOLLOW_AGAIN_S)

    async def _follow(self, store: MembershipStore) -> None:
        async with aclosing(self._discovery.servers()) as lists:
            async for addresses in lists:
                places = {address.host_port for address in addresses}
                for address in self._watches.keys() - set(addresses):
                    await self._unlist(address, store, is_replaced=address.host_port in places)
                for address in addresses:
                    self._list(address, store)

    def _list(self, address: VllmAddress, store: MembershipStore) -> None:
        if address in self._watches:
            self._watches[address][0].is_unlisted = False
        else:
            self._watch(address, store)

    async def _unlist(
        self, address: VllmAddress, store: MembershipStore, *, is_replaced: bool
    ) -> None:
        """`is_replaced`: another one is listed at its place, which has one only."""
        server, _ = self._watches[address]
        if is_replaced or server.is_over:
            await self._drop(address, store)
        elif not server.is_unlisted:
            server.is_unlisted = True
            if server.member is not None:
                self._note_health(server.member.key, False)
            work = self._dropped_when_over(address, server, store)
            self._background.once(f"sees {server.name} off", work)

    async def _dropped_when_over(
        self, address: VllmAddress, server: VllmServer, store: MembershipStore
    ) -> None:
        """Unless it is listed again, or has gone, before."""
        while server.is_unlisted and any(server is known for known, _ in self._watches.values()):
            if server.is_over:
                await self._drop(address, store)
            else:
                await self._world.sleep(self._interval_s)

    def _watch(self, address: VllmAddress, store: MembershipStore) -> None:
        server = VllmServer(address, self._open_wire(address))
        self._servers.add(server)
        watch = ServerWatch(
            server,
            store,
            self._model,
            interval_s=self._interval_s,
            sleep=self._world.sleep,
            on_health=self._note_health,
            on_late_reads=self._on_late_reads,
        )
        task = self._background.keep(f"looks at {server.name}", watch.run)
        self._watches[address] = server, task

    async def _drop(self, address: VllmAddress, store: MembershipStore) -> None:
        server, task = self._watches.pop(address)
        await cancel([task])
        server.note_lost()
        if server.member is not None:
            await store.leave(server.member.key)
            self._links.pop(server.member.key, None)
        self._on_gone(server.name)
        self._servers.remove(server)
        await server.wire.close()

    def _note_health(self, key: WorkerKey, is_well: bool) -> None:
        if (link := self._links.get(key)) is not None:
            link.note_health(is_well=is_well)
